"""Where batches come from: each file here is one data set, named by `_target_` in conf/data/."""
