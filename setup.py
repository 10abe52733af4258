"""Builds the extensions, if it can; without them everything works through PyTorch.

With REGARD_SANITIZE=address or REGARD_SANITIZE=thread the build is one for tests: it watches for
wrong addresses and undefined behaviour, or for races, and is slow. `.ci/sanitize` runs it.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CompileError, LinkError

ENGINE = Path("src/regard/engine")
KERNELS = Path("src/regard/kernels")
ABSENT = "absent.txt"  # says why there is no extension; native.py beside it reads it

# The same for every unit: those for one processor turn its instructions on for their own functions
# alone, and what runs is chosen when the engine starts.
FLAGS = [
    "-std=c++20",
    "-O3",
    "-g0",
    "-fvisibility=hidden",
    # Sums are what the source says they are: the same bits in every loop that computes them.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Wno-psabi",  # vectors wider than a register never leave a unit
]

# In place of -O3, and when linking.
SANITIZERS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}


class Build(build_ext):
    """Compiles the units side by side; a failure is written down and passed over."""

    def build_extension(self, ext: Extension) -> None:
        """Compile and link, or say in a file why not."""
        extension = Path(self.get_ext_fullpath(ext.name))
        absent = extension.with_name(ABSENT)
        absent.parent.mkdir(parents=True, exist_ok=True)
        for former in (extension, absent):
            former.unlink(missing_ok=True)
        try:
            self._compile_and_link(ext)
        except (BaseError, CompileError, LinkError, ImportError, OSError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            absent.write_text(f"{reason}\n", encoding="utf-8")
            self.warn(f"{ext.name} is not built, PyTorch will do its work: {reason}")

    def get_outputs(self) -> list[str]:
        """What was made: the extension, or the reason why it was not."""
        made = [Path(path) for path in super().get_outputs()]
        return [str(p if p.exists() else p.with_name(ABSENT)) for p in made]

    def copy_extensions_to_source(self) -> None:
        """For an editable install: what was made goes beside the sources."""
        self.inplace = False
        made = [Path(path) for path in self.get_outputs()]
        self.inplace = True
        for path, package in zip(made, (ENGINE, KERNELS), strict=True):
            for former in (ABSENT, Path(self.get_ext_filename("_native")).name):
                (package / former).unlink(missing_ok=True)
            self.copy_file(str(path), str(package / path.name))

    def _compile_and_link(self, ext: Extension) -> None:
        if sys.platform == "win32":
            raise CompileError("it is not made for Windows yet")
        import pybind11  # noqa: PLC0415 - without it, the install goes on

        sanitizer = os.environ.get("REGARD_SANITIZE", "")
        if sanitizer not in {"", *SANITIZERS}:
            names = ", ".join(SANITIZERS)
            raise SystemExit(f'REGARD_SANITIZE is "{sanitizer}", expected one of {names}')
        watch = SANITIZERS.get(sanitizer, [])
        flags = [*FLAGS, *watch, "-O1", "-g1", "-fno-omit-frame-pointer"] if watch else FLAGS
        flags = [*flags, *ext.extra_compile_args]
        includes = [*self.include_dirs, *ext.include_dirs, pybind11.get_include()]

        def compiled(source: str) -> list[str]:
            try:
                made: list[str] = self.compiler.compile(
                    [source],
                    output_dir=self.build_temp,
                    include_dirs=includes,
                    extra_postargs=flags,
                )
            except CompileError:  # whose text is the whole command
                name = getattr(self.compiler, "compiler_so_cxx", self.compiler.compiler_so)[0]
                raise CompileError(
                    f"`{name}` is missing or did not compile {Path(source).name} (it must know "
                    "C++20); `pip install -v` shows what it said"
                ) from None
            return made

        with ThreadPoolExecutor(self.parallel or 2) as pool:
            objects = [path for paths in pool.map(compiled, ext.sources) for path in paths]
        self.compiler.link_shared_object(
            objects,
            self.get_ext_fullpath(ext.name),
            libraries=self.get_libraries(ext),
            export_symbols=None,
            extra_postargs=watch,
            build_temp=self.build_temp,
            target_lang="c++",
        )


def _files(package: Path, pattern: str) -> list[str]:
    return sorted(path.as_posix() for path in (package / "csrc").glob(pattern))


setup(
    ext_modules=[
        Extension(
            "regard.engine._native",
            _files(ENGINE, "*.cpp"),
            depends=_files(ENGINE, "*.h"),
            language="c++",
        ),
        # Which instructions to use is asked as the engine asks it.
        Extension(
            "regard.kernels._native",
            [*_files(KERNELS, "*.cpp"), (ENGINE / "csrc/isa.cpp").as_posix()],
            include_dirs=[(ENGINE / "csrc").as_posix()],
            depends=[*_files(KERNELS, "*.h"), *_files(ENGINE, "*.h")],
            # A half of its time is exp: products and sums in one instruction where there is one.
            extra_compile_args=["-ffp-contract=fast"],
            language="c++",
        ),
    ],
    cmdclass={"build_ext": Build},
)
