"""How a DAG that runs stands: a fold over its log, and its views."""
