"""The cache: made once, by one process, and whole."""

import multiprocessing
import os
import time

from tests.conftest import in_cache
from trainkit.data.cache import cached_folder


def test_what_a_killed_process_left_in_the_cache_is_removed(tmp_path):
    def killed(folder):
        (folder / "half").touch()
        os._exit(9)

    child = multiprocessing.get_context("fork").Process(target=cached_folder, args=(tmp_path, "content", killed))
    child.start()
    child.join(60)
    assert child.exitcode == 9
    (left,) = in_cache(tmp_path)
    made = cached_folder(tmp_path, "content", lambda folder: (folder / "whole").touch())
    assert in_cache(tmp_path) == [made] != [left]
    assert sorted(file.name for file in made.iterdir()) == ["contents.json", "whole"]


def test_one_of_several_processes_makes_what_all_wait_for(tmp_path):
    def make(folder):
        with (tmp_path / "log").open("a") as log:
            log.write("made\n")
        time.sleep(0.5)

    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=cached_folder, args=(tmp_path / "cache", "content", make)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "made\n"
