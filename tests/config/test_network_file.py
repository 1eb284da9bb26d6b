"""The file of a network's class is found without running its code."""

import importlib

import pytest

from trainkit.config.network_file import network_digest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose import fails, with a module `nets`."""
    folder = tmp_path / "a_users_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    (folder / "nets.py").write_text("class Net: pass")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_it_is_of_the_module_of_the_class_alone(package):
    first = network_digest("a_users_package.nets.Net")
    assert first is not None
    assert len(first) == 8
    (package / "__init__.py").write_text("raise AssertionError('still imported')")
    assert network_digest("a_users_package.nets.Net") == first
    (package / "nets.py").write_text("class Net: width = 2")
    assert network_digest("a_users_package.nets.Net") != first


def test_a_class_of_a_package_itself_is_in_its_init_file(package):
    before = network_digest("a_users_package.Net")
    (package / "__init__.py").write_text("class Net: pass")
    assert None not in (before, network_digest("a_users_package.Net"))
    assert network_digest("a_users_package.Net") != before


def test_a_network_of_the_project_has_one():
    names = ("trainkit.models.gpt2.GPT2", "trainkit.models.resnet50.ResNet50")
    assert len({network_digest(name) for name in names} - {None}) == 2


@pytest.mark.parametrize("target", [None, "", ".", "nan", "sys.path", "no_such_module.Net", "a b/c", 3])
def test_what_names_no_file_has_none(target):
    importlib.invalidate_caches()
    assert network_digest(target) is None
