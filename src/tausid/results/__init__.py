"""What is kept and shown of fits: run folders, residual tests, figures, reports, tables of studies."""
