"""An experiment written down as one flat DAG and what travels with it."""
