"""The strongest evidence decides, and messages that mean several remedies have none."""

import subprocess
import sys

from trainkit.diagnosis.remedies import cuda_graphs, graph_breaks, recompiles
from trainkit.diagnosis.remedies.matching import Clue, Evidence, Remedy, choose_remedy, matching

ITEM = Remedy("item", "why", "fix", (Clue("item"),))
PRINT = Remedy("print", "why", "fix", (Clue(line=r"^print\(", evidence=Evidence.LINE),))
LOOP = Remedy("loop", "why", "fix", (Clue("item", line="^for", evidence=Evidence.MESSAGE_AND_LINE),))
CALL = Remedy("call", "why", "fix", (Clue(unless="disabled", unless_line="^torch", evidence=Evidence.GENERAL_MESSAGE),))
UNKNOWN = Remedy("unknown", "why", "fix")
REMEDIES = (ITEM, PRINT, LOOP, CALL)


def test_the_strongest_evidence_decides():
    assert matching(REMEDIES, "item", "print(x)") == [PRINT]
    assert matching(REMEDIES, "item", "for k in x") == [LOOP]
    assert matching(REMEDIES, "item", "y = x") == [ITEM]
    assert matching(REMEDIES, "a call", "y = x") == [CALL]


def test_a_clue_excludes_words_of_the_message_and_of_the_line():
    assert matching(REMEDIES, "disabled", "y = x") == []
    assert matching(REMEDIES, "a call", "torch.f(x)") == []


def test_a_message_that_means_several_remedies_has_none():
    other = Remedy("other", "why", "fix", (Clue("item"),))
    assert choose_remedy((ITEM, other), "item", "", UNKNOWN) is UNKNOWN
    assert choose_remedy((ITEM, other), "none", "", UNKNOWN) is UNKNOWN
    assert choose_remedy((ITEM, PRINT), "item", "", UNKNOWN) is ITEM


def test_every_cause_has_a_name_of_its_own():
    remedies = [*graph_breaks.BREAK_REMEDIES, *recompiles.RECOMPILE_REMEDIES, *cuda_graphs.SKIP_REMEDIES]
    remedies += [graph_breaks.REPEATED_RANDOM, graph_breaks.BELOW_BREAK, recompiles.FIXED_SIZE]
    assert len({remedy.cause for remedy in remedies}) == len(remedies) > 50


def test_every_remedy_has_a_clue_of_its_own():
    for remedy in (*graph_breaks.BREAK_REMEDIES, *recompiles.RECOMPILE_REMEDIES, *cuda_graphs.SKIP_REMEDIES):
        assert remedy.clues, remedy.cause


def test_remedies_need_no_torch():
    names = ("graph_breaks", "recompiles", "cuda_graphs")
    imports = "; ".join(f"import trainkit.diagnosis.remedies.{name}" for name in names)
    subprocess.run([sys.executable, "-c", f"{imports}; import sys; assert 'torch' not in sys.modules"], check=True)
