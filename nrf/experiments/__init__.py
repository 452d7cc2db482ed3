"""The paper's experiments: design, runs, statistics, figures, page. `nrf reproduce` is the command."""
