"""Targets that cannot be imported, and the types of a target's settings; what its class refuses is in tests/config."""

import sys

import pytest

from trainkit.config.errors import ConfigError
from trainkit.training.instantiate import instantiate_node, type_complaints


@pytest.mark.parametrize(("package", "extra"), [("datasets", "files"), ("tokenizers", "files"), ("timm", "networks")])
def test_a_package_that_is_not_installed_is_named_with_its_extra(package, extra, tmp_path, monkeypatch):
    (tmp_path / f"needs_{package}.py").write_text(f"import {package}\nclass Data: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(
        ConfigError, match=rf"import of {package} .*; install it with pip install 'trainkit\[{extra}\]'"
    ):
        instantiate_node("data", "mine", {"_target_": f"needs_{package}.Data"})


def test_a_missing_package_of_nobodys_is_answered_by_an_installed_class():
    with pytest.raises(ConfigError, match=r"model\._target_ = nowhere\.Net: .*nowhere.*; give an installed class$"):
        instantiate_node("model", "mine", {"_target_": "nowhere.Net"})


def test_what_is_neither_a_number_nor_a_truth_value_is_the_classes_own_matter():
    def takes(some: int | None, either: int | str, late: int = None) -> None: ...  # noqa: RUF013

    def unread(later: "Nowhere") -> None: ...  # noqa: F821

    given = {"some": None, "either": "a", "late": None, "later": "a", "kind": {"_target_": "a"}}
    assert type_complaints("model", takes, given) == type_complaints("model", unread, given) == []


def test_an_inherited_setting_is_checked_too():
    class Base:
        def __init__(self, width: int, deep: bool = False): ...

    class Child(Base):
        def __init__(self, *, scale: float = 1.0, **others: int): ...

    assert type_complaints("model", Child, {"width": 3, "scale": 2, "deep": True}) == []
    assert type_complaints("model", Child, {"width": "a", "scale": True, "deep": 1}) == [
        "model.width = a: expected a whole number",
        "model.deep = 1: expected true or false; try model.deep=false",
        "model.scale = True: expected a number; try model.scale=1.0",
    ]
