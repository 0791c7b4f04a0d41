"""Records: what they are, where they come from, and what is done to them before a fit. Physical units."""
