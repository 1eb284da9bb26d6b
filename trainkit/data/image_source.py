"""Images with classes that are not decoded yet: in class folders here, or in a data set of the hub."""

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import datasets
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder

from trainkit.config.errors import ConfigError, refuse
from trainkit.data.cache import make_folder
from trainkit.data.location import (
    TRAIN_NAMES,
    VALIDATION_NAMES,
    DataLocation,
    find_train_and_val,
    first_split,
    load_splits,
)

IMAGE = "image"
IMAGES_WAY_OUT = "give a folder of class folders, or a data set of the hub"


@dataclass(frozen=True)
class ImageSplit:
    """Images that are not decoded yet, and the number of each one's class."""

    location: DataLocation
    images: datasets.Dataset  # column `image`: {path, bytes}
    targets: list[int]  # places in class_names
    class_names: list[str]

    @property
    def fingerprint(self) -> str:
        """A hash of paths, sizes and times of the files; the library's fingerprint if they are not files here."""
        stamps = []
        for image in self.images["image"]:
            file = Path(image["path"] or "")
            if image["bytes"] is not None or not file.is_file():
                return f"{self.images._fingerprint} {self.targets}"
            stat = file.stat()
            stamps.append((str(file.absolute()), stat.st_size, stat.st_mtime_ns))
        return hashlib.sha256(repr((stamps, self.targets)).encode()).hexdigest()


def find_image_splits(
    train_location: DataLocation, val_location: DataLocation | None, label_column: str | None, cache_dir: Path
) -> dict[str, ImageSplit]:
    """`train`, and `val` if there are images to validate on. Classes have the same numbers in both."""
    load_once = cache(_load)

    def find(location: DataLocation, names: tuple[str, ...]) -> datasets.Dataset | None:
        return first_split(load_once(location, cache_dir), names)

    train, val = find_train_and_val(train_location, val_location, find)
    splits = {"train": _read_columns(train_location, train, label_column)}
    if val is not None:
        val_split = _read_columns(val_location or train_location, val, label_column)
        splits["val"] = _renumber(val_split, splits["train"])
    return splits


def _load(location: DataLocation, cache_dir: Path) -> Mapping[str, datasets.Dataset]:
    """Every split at the location, by name."""
    folder = location.local_path
    library_cache = str(make_folder(cache_dir / "datasets"))
    if folder.is_file():
        raise location.error("a single file")
    if not folder.is_dir():
        return load_splits(location, location.path, cache_dir=library_cache)
    refuse(_left_out(location, folder))
    # A folder to validate on may have a single class; without this the library would take it for one without classes.
    settings = {"drop_labels": False} if location.setting == "data.val_path" else {}
    return load_splits(location, "imagefolder", data_dir=str(folder), cache_dir=library_cache, **settings)


def _left_out(location: DataLocation, folder: Path) -> list[str]:
    """A complaint for each thing that the library leaves out without a message.

    These are links to nothing and to folders, what is no regular file, classes without an image, and images beside the
    folders of the classes. Hidden files and folders, and files that are no images, are counted on stderr.
    """
    split_folders = {folder}
    for name in TRAIN_NAMES + VALIDATION_NAMES:
        split_folders.add(folder / name)
    complaints = []
    kinds: Counter[str] = Counter()
    for parent, folders, files in os.walk(folder):
        hidden = [name for name in folders if name.startswith((".", "__"))]
        kinds.update({"hidden folders": len(hidden)})
        folders[:] = [name for name in folders if name not in hidden]  # os.walk does not enter the others
        for path in [Path(parent, name) for name in sorted(folders)]:
            if path.is_symlink():
                problem = f"{path} is a link to a folder, which is not entered"
                complaints.append(location.complaint(problem, "put the folder itself there"))
        beside_classes = bool(folders) and Path(parent) in split_folders
        kinds_here: Counter[str] = Counter()
        for file in [Path(parent, name) for name in sorted(files)]:
            kinds_here[_kind(file)] += 1
            problem, way_out = _file_problem(file, beside_classes)
            if problem:
                complaints.append(location.complaint(f"{file} {problem}", way_out))
        if not folders and not kinds_here[IMAGE]:
            complaints.append(location.complaint(f"{parent} has no images", "give it some, or remove it"))
        kinds += kinds_here
    del kinds[IMAGE]
    kinds += Counter()  # drops what there is none of
    if kinds and not complaints:
        counts = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        print(f"{location.setting} = {folder}: what is no image is left out: {counts}", file=sys.stderr)
    return complaints


def _kind(file: Path) -> str:
    """IMAGE for a file that the library takes for one, else why it does not."""
    if file.name.startswith("."):
        return "hidden"
    suffix = file.suffix.lower()
    if suffix in ImageFolder.EXTENSIONS:
        return IMAGE
    return suffix or "without a suffix"


def _file_problem(file: Path, beside_classes: bool) -> tuple[str, str]:
    """The problem with a file, and the way out; empty if there is none."""
    if not file.exists():
        return "is a link to nothing", "fix it or leave it out"
    if not file.is_file():
        return "is no regular file", "leave it out"
    if beside_classes and _kind(file) == IMAGE:
        return "lies beside the folders of the classes", "move it into one"
    return "", ""


def _read_columns(location: DataLocation, split: datasets.Dataset, label_column: str | None) -> ImageSplit:
    """The images and the classes of a loaded split. Raises ConfigError if it has none, or images without a class."""
    image_columns = _columns_of(split, datasets.Image)
    label = _choose_label(location, split, label_column)
    targets = split[label][:]
    num_withheld = sum(target is None or target < 0 for target in targets)
    if num_withheld:
        raise location.error(f"{num_withheld} images of its {split.split} split have no class")
    images = split.select_columns([image_columns[0]])
    if image_columns[0] != "image":
        images = images.rename_column(image_columns[0], "image")
    images = images.cast_column("image", datasets.Image(decode=False))
    return ImageSplit(location, images, targets, split.features[label].names)


def _choose_label(location: DataLocation, split: datasets.Dataset, label_column: str | None) -> str:
    """The column of the classes: the given one, or else the only one."""
    candidates = _columns_of(split, datasets.ClassLabel)
    label = label_column
    if not label and len(candidates) == 1:
        label = candidates[0]
    if label in candidates and _columns_of(split, datasets.Image):
        return label
    problem = f"has the class columns {', '.join(candidates) or 'none'}"
    way_out = "name one of them, or give a folder with a folder for each class"
    if location.setting == "data.val_path" and not label_column:
        raise location.error(problem, way_out)
    raise ConfigError(f"data.label = {label_column}: {location.path} {problem}; {way_out}")


def _columns_of(split: datasets.Dataset, feature_type: type) -> list[str]:
    return [name for name, feature in split.features.items() if isinstance(feature, feature_type)]


def _renumber(val: ImageSplit, train: ImageSplit) -> ImageSplit:
    """The validation images with the numbers that their classes have in training.

    Raises ConfigError for classes without a training image.
    """
    number_of_class = {train.class_names[number]: number for number in set(train.targets)}
    val_classes = {val.class_names[number] for number in val.targets}
    untrained = sorted(val_classes.difference(number_of_class))
    if untrained:
        problem = f"nothing to train on of the validation's classes {', '.join(untrained)}"
        raise val.location.error(problem, "give images of them, or leave them out")
    targets = [number_of_class[val.class_names[number]] for number in val.targets]
    return replace(val, targets=targets, class_names=train.class_names)
