"""How much each model's answer counts, learned from feedback; torch loads when something is trained."""
