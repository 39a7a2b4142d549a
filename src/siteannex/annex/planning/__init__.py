"""From what was asked to a plan: sites compared, partitions chosen, costs and budgets counted."""
