"""Named training configurations, one TOML each."""
