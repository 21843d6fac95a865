"""The folder of a run and the workflow engine: settings, staleness, manifest, archive."""
