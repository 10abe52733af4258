"""Every sequence layer measured on this machine, beside what theory says of it."""
