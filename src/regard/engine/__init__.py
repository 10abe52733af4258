"""The engine: translation on a CPU in C++, with the answers of the PyTorch path, sooner."""
