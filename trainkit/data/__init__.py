"""Data sets. `_target_` in conf/data/ names their classes."""
