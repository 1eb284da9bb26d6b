"""What a user is told of settings that are typed wrongly."""

from collections.abc import Sequence

import pytest

from tests.conftest import CONF


@pytest.fixture
def complaints_about(compose):
    """(overrides, ...) -> the lines that refuse them, before or after the config is composed."""
    from trainkit.config.complaints import complaints
    from trainkit.config.errors import ConfigError
    from trainkit.training.run import run

    def complain(*overrides: str) -> Sequence[str]:
        lines = complaints(list(overrides), CONF)
        if lines:
            return lines
        with pytest.raises(ConfigError) as caught:
            run(compose(*overrides))
        return caught.value.complaints

    return complain
