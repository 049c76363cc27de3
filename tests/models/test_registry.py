"""Finding models by name, and the user's own by module and attribute."""

import sys

import pytest

from models import registry
from models.model import ModelError
from models.vision import mlp


@pytest.mark.parametrize("name", registry.MODELS)
def test_every_registered_model_is_found_under_its_own_name(name):
    assert registry.find(name).name == name


def test_a_model_of_another_module():
    assert registry.find("models.vision.mlp:MODEL") is mlp.MODEL


def test_a_module_in_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "in_working_folder.py").write_text("from models.vision.mlp import MODEL as MINE\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert registry.find("in_working_folder:MINE") is mlp.MODEL


def test_an_unknown_name_brings_the_nearest():
    with pytest.raises(ModelError, match="Did you mean 'convnet'"):
        registry.find("convnt")


def test_an_attribute_that_is_no_model():
    with pytest.raises(ModelError, match=r"no models.model.Model named 'inference' \(found func"):
        registry.find("models.vision.mlp:inference")


def test_a_broken_import_inside_the_users_module_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "broken_model.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        registry.find("broken_model:MODEL")


@pytest.mark.parametrize(
    "path", [".:x", "..:x", ".a:x", "a.:x", "a..b:x", ":x", "os:", "a/b:x", "a:b:c"]
)
def test_what_is_no_attribute_of_a_module_is_refused(path):
    with pytest.raises(ModelError, match=r"must be package\.module:ATTRIBUTE"):
        registry.find(path)


def test_names_without_anything_near_are_listed():
    assert registry.did_you_mean("zzz", ["b", "a"]) == " Valid: a, b."
