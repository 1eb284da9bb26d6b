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
    with pytest.raises(
        ConfigError,
        match=r"model\._target_ = nowhere\.Net: .*nowhere.*; give a class of an installed package, or .*$",
    ):
        instantiate_node("model", "mine", {"_target_": "nowhere.Net"})


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("models.simple_cnn.SimpleCnn", r"models\.simple_cnn has no SimpleCnn; did you mean SimpleCNN\?$"),
        ("models.simple_cnn.Zebra", r"models\.simple_cnn has no Zebra$"),
    ],
)
def test_a_name_that_its_module_lacks_is_answered_by_the_nearest_one(target, problem):
    with pytest.raises(ConfigError, match=problem):
        instantiate_node("model", "mine", {"_target_": target})


def test_an_argument_that_is_missing_is_named_as_it_is_added():
    with pytest.raises(ConfigError, match=r"missing .*; Linear takes \(.*\); add \+model\.out_features=\.\.\.$"):
        instantiate_node("model", "mine", {"_target_": "torch.nn.Linear", "in_features": 3})


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


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Asserts", r"AssertionError: width must be even \(at .*lines\.py:5\)"),
        ("LooksUp", r"KeyError: 'x' \(at .*lines\.py:8\)"),
        ("Broken", r"TypeError: Broken\(\) takes no arguments"),
    ],
)
def test_what_a_constructor_raises_is_one_line_with_its_place(name, problem, tmp_path, monkeypatch):
    (tmp_path / "lines.py").write_text(
        "class Broken:\n"
        "    pass\n"
        "class Asserts:\n"
        "    def __init__(self, width):\n"
        "        assert width % 2 == 0, 'width must be even'\n"
        "class LooksUp:\n"
        "    def __init__(self, width):\n"
        "        {}['x']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=rf"^model = mine: {problem}; \S.*$"):
        instantiate_node("model", "mine", {"_target_": f"lines.{name}", "width": 3})


def test_a_module_that_cannot_be_imported_is_one_line_with_its_place(tmp_path, monkeypatch):
    (tmp_path / "undefined.py").write_text("x = 1\ny = z\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    expected = r"^model\._target_ = undefined\.Net: NameError: .* \(at .*undefined\.py:2\); correct that module$"
    with pytest.raises(ConfigError, match=expected):
        instantiate_node("model", "mine", {"_target_": "undefined.Net"})
