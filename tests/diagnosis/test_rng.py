"""Random numbers that a compiled step repeats are found, with their lines."""

from trainkit.diagnosis.diagnose import examine


def test_a_branch_on_a_number_that_is_drawn_once_is_no_tensors(subject_of):
    diagnosis = examine(subject_of("OwnRandomBranch"))
    assert {(f.kind, f.cause) for f in diagnosis.findings} == {
        ("wrong result", "random number that is drawn once"),
        ("graph break", "random number of Python or NumPy"),
    }
    assert all(f.code.endswith("# DROP") for f in diagnosis.findings)
