"""The docstring of the error tree matches the classes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from http import HTTPStatus

import pytest

import coterie
from coterie.base import errors
from coterie.base.errors import ConfigError, CoterieError, MissingExtra, StorageError

CLASSES = {
    name: member
    for name, member in inspect.getmembers(errors, inspect.isclass)
    if member.__module__ == errors.__name__ and issubclass(member, CoterieError)
}


def documented_tree() -> dict[str, str | None]:
    """Name → parent, parsed from the docstring."""
    parents: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^( {4}[│├└─ ]*)([A-Z]\w+)(?: {2,}\S.*)?$", line)
        if found is None:
            continue
        depth, name = len(found[1]), found[2]
        while above and above[-1][0] >= depth:
            above.pop()
        parents[name] = above[-1][1] if above else None
        above.append((depth, name))
    return parents


def test_the_docstring_lists_every_class_under_its_parent() -> None:
    real = {name: member.__bases__[0].__name__ for name, member in CLASSES.items() if member is not CoterieError}
    assert documented_tree() == {"CoterieError": None, **real}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_error_has_what_and_fix(name: str) -> None:
    kind = CLASSES[name]
    error = kind("local", "The small model") if kind is MissingExtra else kind("It broke.", "Mend it.")
    assert error.what
    assert error.fix
    assert str(error) == f"{error.what} {error.fix}"


def test_exit_codes_are_stable() -> None:
    codes = {name: kind.exit_code for name, kind in CLASSES.items()}
    assert codes == {
        "CoterieError": 1,
        "ConfirmationNeeded": 1,
        "JobError": 1,
        "LeaseLost": 1,
        "SlowConsumer": 1,
        "UnsafePath": 1,
        "TooMuchWork": 1,
        "WorkersBusy": 1,
        "ConfigError": 2,
        "MissingExtra": 3,
        "InUse": 4,
        "StorageError": 5,
        "ReadOnly": 5,
        "DiskFull": 6,
        "Corrupt": 7,
        "SchemaTooNew": 8,
        "BackupError": 9,
        "LogError": 10,
        "Conflict": 10,
        "BadEvent": 10,
        "BadPoint": 10,
        "SecretInName": 10,
        "UnknownEvent": 11,
        "SecretsError": 12,
        "WrongPassphrase": 12,
    }


def test_a_missing_extra_names_the_command_that_installs_it() -> None:
    assert 'pip install "coterie[matrix]"' in MissingExtra("matrix", "Matrix").fix


def test_all_errors_share_a_base_class() -> None:
    with pytest.raises(CoterieError) as caught:
        raise ConfigError("a", "b")
    assert (caught.value.what, caught.value.fix) == ("a", "b")


def test_every_error_of_every_package_has_an_http_status() -> None:
    kinds = set(_all_errors())
    assert StorageError in kinds
    for kind in kinds:
        assert HTTPStatus(kind.http_status) >= HTTPStatus.BAD_REQUEST, kind


def _all_errors() -> Iterator[type[CoterieError]]:
    for module in pkgutil.walk_packages(coterie.__path__, "coterie."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError as error:  # a package of an optional extra
                if (error.name or "").startswith("coterie"):
                    raise
    found = [CoterieError]
    while found:
        kind = found.pop()
        found += kind.__subclasses__()
        yield kind
