"""Images: decoded once; a file that cannot be read is one line that names it."""

import os
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from tests import forked
from tests.conftest import in_cache
from trainkit.config.errors import ConfigError
from trainkit.data.images import Images
from trainkit.data.module import DataModule
from trainkit.training.run import run

CLASSES = ("ant", "bee")


def picture(seed: int, size: tuple[int, int] = (8, 8)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(256, size=(size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def fill(folder: Path, num: int = 6, size: tuple[int, int] = (8, 8), classes: tuple[str, ...] = CLASSES) -> Path:
    """PNG files, so that the pixels are known exactly: `num` of each class."""
    for place, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for n in range(num):
            picture(100 * place + n, size).save(folder / name / f"{n:02d}.png")
    return folder


@pytest.fixture
def images(tmp_path):
    """Images over a path, cached in tmp_path, set up; each setting can be given."""

    def made(path: Path, **settings) -> Images:
        sizes = {"batch_size": 2, "image_size": 8, "num_classes": 2, "cache_dir": str(tmp_path / "cache")}
        data = Images(path=str(path), **{**sizes, **settings})
        data.prepare_data()
        data.setup("fit")
        return data

    return made


def test_pixels_and_classes_are_those_of_the_files(images, tmp_path):
    fill(tmp_path / "all/train")
    fill(tmp_path / "all/val", num=2)
    data = images(tmp_path / "all")
    assert (len(data.train_set), len(data.val_set)) == (12, 4)
    inputs, targets = data.val_set.__getitems__([1, 3])
    assert (inputs.dtype, inputs.shape, targets.tolist()) == (torch.uint8, (2, 3, 8, 8), [0, 1])
    assert np.array_equal(inputs[0].permute(1, 2, 0), np.asarray(picture(1)))
    assert np.array_equal(inputs[1].permute(1, 2, 0), np.asarray(picture(101)))


@pytest.mark.parametrize(("size", "side"), [((32, 16), 8), ((16, 24), 16), ((4, 6), 8)])
def test_the_shorter_side_is_scaled_and_the_middle_cut_out(images, tmp_path, size, side):
    fill(tmp_path / "all", size=size)
    data = images(tmp_path / "all", side=side, val_fraction=0.5)
    inputs, _ = data.train_set.dataset.__getitems__([0])
    scaled = [round(length * side / min(size)) for length in size]
    whole = np.asarray(picture(0, size).resize(scaled, Image.Resampling.BILINEAR)).astype(int)
    top, left = (whole.shape[0] - side) // 2, (whole.shape[1] - side) // 2
    assert inputs.shape == (1, 3, side, side)
    assert np.array_equal(inputs[0].permute(1, 2, 0), whole[top : top + side, left : left + side])


def test_the_seed_decides_which_images_validate(images, tmp_path):
    fill(tmp_path / "all")
    chosen = [tuple(images(tmp_path / "all", seed=seed, val_fraction=0.25).val_set.indices) for seed in (0, 0, 1)]
    assert len(chosen[0]) == 3
    assert chosen[0] == chosen[1] != chosen[2]
    data = images(tmp_path / "all", val_fraction=0.25)
    assert set(data.train_set.indices) | set(data.val_set.indices) == set(range(12))


def test_grey_images_have_one_channel(images, tmp_path):
    fill(tmp_path / "all")
    data = images(tmp_path / "all", channels=1, mean=[0.5], std=[0.5])
    inputs, _ = data.train_set.dataset.__getitems__([0])
    assert np.array_equal(inputs[0, 0], np.asarray(picture(0).convert("L")))


def test_images_are_decoded_once_and_again_when_one_has_changed(images, tmp_path, monkeypatch):
    fill(tmp_path / "all")
    first = images(tmp_path / "all")
    picture(999).save(tmp_path / "all/ant/00.png")
    changed = images(tmp_path / "all")
    assert changed.cache_folder != first.cache_folder
    assert np.array_equal(changed.train_set.dataset.__getitems__([0])[0][0].permute(1, 2, 0), np.asarray(picture(999)))
    monkeypatch.setattr("trainkit.data.images.decode_image", None)
    assert images(tmp_path / "all").cache_folder == changed.cache_folder


def test_another_folder_of_files_alike_in_name_size_and_time_is_another_cache(images, tmp_path):
    for name, seed in (("one", 1), ("two", 2)):
        fill(tmp_path / name)
        for file in sorted((tmp_path / name).glob("*/*.png")):
            picture(seed).save(file, format="BMP")
            os.utime(file, (0, 0))
    first, second = (images(tmp_path / name).train_set.dataset.__getitems__([0])[0] for name in ("one", "two"))
    assert not torch.equal(first, second)


def test_what_the_library_would_leave_out_is_named(images, tmp_path):
    (fill(tmp_path / "all/train") / "ant/06.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "all/train/cow").mkdir()
    picture(1).save(tmp_path / "all/train/loose.png")
    with pytest.raises(ConfigError) as caught:
        images(tmp_path / "all")
    train = tmp_path / "all/train"
    assert sorted(line.split(": ", 1)[1] for line in caught.value.complaints) == [
        f"{train}/ant/06.png is a link to nothing; fix it or leave it out",
        f"{train}/cow has no images; give it some, or remove it",
        f"{train}/loose.png lies beside the folders of the classes; move it into one",
    ]


def test_a_file_to_validate_on_that_cannot_be_read_is_named_with_its_own_setting(images, tmp_path):
    fill(tmp_path / "all")
    (fill(tmp_path / "other") / "bee/03.png").write_bytes(b"no image")
    with pytest.raises(ConfigError, match=r"^data\.val_path = .*other: .*bee/03\.png cannot be read"):
        images(tmp_path / "all", val_path=str(tmp_path / "other"))


def test_settings_that_make_other_pixels_have_a_cache_of_their_own(images, tmp_path):
    fill(tmp_path / "all")
    grey = {"channels": 1, "mean": [0.5], "std": [0.5]}
    same = [{}, {"seed": 1}, {"batch_size": 3}, {"flip": False}]
    different = [{"side": 9}, grey, {**grey, "side": 9}]
    assert len({images(tmp_path / "all", **settings).cache_folder for settings in same}) == 1
    assert len({images(tmp_path / "all", **settings).cache_folder for settings in [{}, *different]}) == 4


@pytest.mark.parametrize("content", [b"", b"no image", "cut off"])
def test_a_file_that_cannot_be_read_is_one_line_and_nothing_is_cached(images, tmp_path, content):
    file = fill(tmp_path / "all") / "bee" / "03.png"
    file.write_bytes(file.read_bytes()[:60] if content == "cut off" else content)
    with pytest.raises(ConfigError) as caught:
        images(tmp_path / "all")
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert in_cache(tmp_path / "cache") == []


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"num_classes": 3}, "data.num_classes = 3: .*all has 2; say data.num_classes=2"),
        ({"image_size": 9, "side": 8}, "data.image_size = 9: cut out of data.side = 8 and 0 pixels around it"),
        ({"channels": 2}, "data.channels = 2: expected 1 .grey. or 3 .RGB."),
        ({"channels": 1}, "expected 1 values each"),
        ({"val_fraction": 1.5}, "data.val_fraction = 1.5: expected a fraction between 0 and 1"),
        ({"val_fraction": "most"}, "data.val_fraction = most: expected a fraction between 0 and 1"),
        ({"std": [0.2, 0, 0.2]}, r"data.std = \[0.2, 0, 0.2\]: expected numbers above 0"),
        ({"std": [0.2, -0.1, 0.2]}, "data.std = .*: expected numbers above 0"),
        ({"std": [0.2, "a", 0.2]}, "data.std = .*: expected numbers above 0"),
        ({"mean": [0.2, "a", 0.2]}, "data.mean = .*: expected numbers"),
        ({"crop_padding": -1}, "data.crop_padding = -1: expected a number of pixels of at least 0"),
        ({"cache_dir": "/proc/nowhere"}, "data.cache_dir = /proc/nowhere.*: .*give a folder that can be written"),
        ({"label": "colour"}, "data.label = colour: .*all has the class columns label"),
        ({"val_path": "nowhere"}, "data.val_path = nowhere: .*give a folder of class folders"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line(images, tmp_path, settings, complaint, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    fill(tmp_path / "all")
    with pytest.raises(ConfigError, match=complaint) as caught:
        images(tmp_path / "all", **settings)
    assert "\n" not in str(caught.value)


def test_no_path_and_folders_without_classes_are_one_line(images, tmp_path):
    with pytest.raises(ConfigError, match=r"data\.path = null: no images"):
        Images(path=None, batch_size=2)
    (tmp_path / "flat").mkdir()
    picture(0).save(tmp_path / "flat" / "0.png")
    with pytest.raises(ConfigError, match="a folder for each class"):
        images(tmp_path / "flat")


def test_classes_of_only_one_side_are_named(images, tmp_path):
    fill(tmp_path / "all/train")
    fill(tmp_path / "all/val", classes=("ant", "wasp"))
    with pytest.raises(ConfigError, match="nothing to train on of the validation's classes wasp"):
        images(tmp_path / "all")


@pytest.mark.parametrize("classes", [("bee", "cat"), ("cat",)], ids=len)
def test_a_class_has_one_number_in_both_folders(images, tmp_path, classes):
    three = ("ant", "bee", "cat")
    data = images(
        fill(tmp_path / "train", classes=three), val_path=fill(tmp_path / "val", classes=classes), num_classes=3
    )
    _, targets = data.val_set.__getitems__(range(len(data.val_set)))
    assert targets.tolist() == [three.index(name) for name in classes for _ in range(6)]


def test_a_picture_of_too_many_pixels_is_one_line(images, tmp_path, monkeypatch):
    fill(tmp_path / "all")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(ConfigError, match=r"data.path = .*all: .*00.png cannot be read \(Image size"):
        images(tmp_path / "all")


def targets_of(data: DataModule) -> list[int]:
    return data.val_set.__getitems__(range(len(data.val_set)))[1].tolist()


def test_a_val_path_that_does_not_fit_is_named_with_its_own_setting(images, tmp_path):
    fill(tmp_path / "all")
    fill(tmp_path / "one", classes=("wasp",))
    with pytest.raises(ConfigError, match=r"^data\.val_path = .*one: nothing to train on of .* classes wasp; "):
        images(tmp_path / "all", val_path=str(tmp_path / "one"))


def test_classes_of_the_hub_are_known_by_name_too(images, tmp_path, monkeypatch):
    def split(names: list[str], targets: list[int]) -> datasets.Dataset:
        features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=names)})
        made = {"img": [picture(n) for n in range(len(targets))], "label": targets}
        return datasets.Dataset.from_dict(made, features)

    hub = {
        "own/train": {"train": split(["ant", "bee", "cow"], [0, 1, 2])},
        "own/val": {"test": split(["cow", "ant"], [0, 1, 0])},
        "own/withheld": {"test": split(["cow", "ant"], [-1, -1])},
        "own/odd": {"train": datasets.Dataset.from_dict({"a": [1]})},
        "own/neither": {"extra": split(["cow", "ant"], [0])},
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda path, **settings: hub[path])
    assert targets_of(images("own/train", val_path="own/val", num_classes=3)) == [2, 0, 2]
    for name, said in (
        ("withheld", "2 images .* have no class"),
        ("odd", "has the class columns none"),
        ("neither", "nothing to validate on"),
    ):
        with pytest.raises(ConfigError, match=f"^data.val_path = own/{name}: {said}"):
            images("own/train", val_path=f"own/{name}", num_classes=3)


def test_grey_of_sixteen_bits_keeps_its_shades(images, tmp_path):
    fill(tmp_path / "all")
    shades = np.linspace(0, 65535, 64).round().astype(np.uint16).reshape(8, 8)
    for name in ("00.png", "01.tif", "02.pgm"):
        Image.fromarray(shades).save(tmp_path / "all/ant" / name)
    (tmp_path / "all/ant/01.png").unlink()
    (tmp_path / "all/ant/02.png").unlink()
    wanted = np.round(shades / 257)
    for settings in ({}, {"channels": 1, "mean": [0.5], "std": [0.5]}):
        inputs, _ = images(tmp_path / "all", **settings).train_set.dataset.__getitems__([0, 1, 2])
        assert all(np.array_equal(channel, wanted) for image in inputs for channel in image)


def test_files_that_are_no_images_are_counted(images, tmp_path, capfd):
    folder = fill(tmp_path / "all")
    for name in (".hidden.png", "drawing.svg", "notes.txt", "more.txt"):
        (folder / "bee" / name).touch()
    for name in (".cache", "bee/__MACOSX"):
        (folder / name).mkdir()
        (folder / name / "1.png").touch()
    images(folder)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "left out" in line]
    assert line == f"data.path = {folder}: what is no image is left out: 1 .svg, 2 .txt, 1 hidden, 2 hidden folders"


def test_what_no_image_can_be_read_of_is_refused(images, tmp_path):
    folder = fill(tmp_path / "all")
    os.mkfifo(folder / "bee" / "fifo.png")
    (folder / "wasp").mkdir()
    (folder / "wasp" / "notes.txt").touch()
    (folder / "linked").symlink_to(folder / "bee")
    with pytest.raises(ConfigError) as caught:
        images(folder)
    problems = [line.partition(": ")[2] for line in caught.value.complaints]
    assert sorted(problems) == [
        f"{folder / 'bee' / 'fifo.png'} is no regular file; leave it out",
        f"{folder / 'linked'} is a link to a folder, which is not entered; put the folder itself there",
        f"{folder / 'wasp'} has no images; give it some, or remove it",
    ]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_pixels_of_unknown_range_are_refused(images, tmp_path, dtype):
    file = fill(tmp_path / "all") / "bee" / "09.tif"
    Image.fromarray(np.ones((8, 8), dtype=dtype)).save(file)
    with pytest.raises(ConfigError, match=rf"^data\.path = .*all: {file} cannot be read \(pixels of 32 bits\); fix it"):
        images(tmp_path / "all")


def test_a_cached_file_that_is_cut_off_is_one_line(images, tmp_path):
    fill(tmp_path / "all")
    file = images(tmp_path / "all").cache_folder / "train-images.npy"
    for size in (file.stat().st_size - 1, 50, 0):
        os.truncate(file, size)
        with pytest.raises(ConfigError) as caught:
            images(tmp_path / "all")
        line = f"data.cache_dir = {tmp_path / 'cache'}: {file} is cut off; delete the folder {file.parent}"
        assert caught.value.complaints == (line,)


def test_a_cached_file_of_other_content_or_none_is_one_line(images, tmp_path):
    fill(tmp_path / "all")
    file = images(tmp_path / "all").cache_folder / "train-targets.npy"
    targets = np.load(file)
    os.utime(file, (1, 1))
    assert images(tmp_path / "all").cache_folder == file.parent  # the same content at another time
    np.save(file, targets + 1)
    for problem in ("is not what was written", "is gone"):
        with pytest.raises(ConfigError) as caught:
            images(tmp_path / "all")
        line = f"data.cache_dir = {tmp_path / 'cache'}: {file} {problem}; delete the folder {file.parent}"
        assert caught.value.complaints == (line,)
        file.unlink(missing_ok=True)


def test_two_processes_may_decode_the_same_images_at_once(tmp_path):
    fill(tmp_path / "all", num=40)
    program = """
from trainkit.data.images import Images
images = Images(path="all", cache_dir="cache", batch_size=2, image_size=8, num_classes=2)
together()
images.prepare_data()
images.setup("fit")
print(len(images.train_set))
"""
    assert forked.twice(program, tmp_path) == ["72", "72"]
    assert len(in_cache(tmp_path / "cache")) == 1


def test_an_image_folder_trains_in_one_graph(compose, tmp_path):
    fill(tmp_path / "all", num=40)
    row = run(
        compose(
            "data=image_folder", f"data.path={tmp_path / 'all'}", f"data.cache_dir={tmp_path / 'cache'}", "check=true",
            "data.image_size=8", "data.num_classes=2", "data.batch_size=8", "data.crop_padding=1", "model=simple_cnn",
            "compile.backend=aot_eager", "trainer.max_epochs=2",
        )
    )  # fmt: skip
    assert (row.status, row.num_graph_breaks, row.check_passed) == ("ok", 0, True)
    assert row.train_loss < 0.8
