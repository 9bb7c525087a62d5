"""What the package offers."""

from __future__ import annotations

import subprocess
import sys
import types

import tidegate


def test_everything_public_is_exported() -> None:
    public = {
        name
        for name, value in vars(tidegate).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    helpers = {"Any", "ConnectOptions", "Final", "Mapping", "SSLContext", "TransportFactory"}
    functions = {"annotations", "is_url", "parse_url", "replace"}
    assert public - helpers - functions == set(tidegate.__all__) - {"__version__"}


def test_exports_are_sorted() -> None:
    assert tidegate.__all__ == sorted(tidegate.__all__, key=str.casefold)


def test_the_module_says_what_pep_249_asks_for() -> None:
    assert (tidegate.apilevel, tidegate.threadsafety, tidegate.paramstyle) == (
        "2.0",
        2,
        "pyformat",
    )


def test_the_exceptions_form_the_tree_of_pep_249() -> None:
    for name in ("Data", "Operational", "Integrity", "Internal", "Programming", "NotSupported"):
        assert issubclass(getattr(tidegate, f"{name}Error"), tidegate.DatabaseError)
    assert issubclass(tidegate.DatabaseError, tidegate.Error)
    assert issubclass(tidegate.InterfaceError, tidegate.Error)


def test_importing_the_driver_imports_nothing_heavy() -> None:
    script = "import sys, tidegate; print(*{'pyarrow', 'numpy', 'pandas'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
