"""Secrets among the overrides: they would stand in row.json, in `.hydra/`, in W&B and in every report."""

import re
from collections.abc import Iterator, Sequence

# A key of a setting, alone or in a nested value (`{api_key: ...}`); `pad_token` and `next_token` are none.
SECRET = re.compile(
    r"\b(?:\w*_)?(?:api_?key|access_?key|private_?key|password|passwd|secret|credentials?"
    r"|(?:api|auth|access|refresh|bearer|hf|hub)_?token)['\"]?\s*[=:]"
    r"|\btoken['\"]?\s*[=:]",
    re.IGNORECASE,
)
# A user and a password before the host.
IN_URL = re.compile(r"://[^/@\s]+:[^/@\s]+@")
WAY_OUT = "do not type secrets, they would stand in row.json and in reports; set WANDB_API_KEY, HF_TOKEN or the like"


def secret_complaints(overrides: Sequence[str]) -> Iterator[str]:
    """A line, without the value, for each override that holds a secret."""
    for override in overrides:
        setting = override.partition("=")[0].lstrip("+~")
        if SECRET.search(override):
            yield f"{setting}: names a secret; {WAY_OUT}"
        elif IN_URL.search(override):
            yield f"{setting}: has a password in a URL; {WAY_OUT}"
