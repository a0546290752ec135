"""Jobs: the settings to start from for every dataset, changes to them, and FLARE job folders."""
