"""GEN SUBDAG: a part of a DAG written once, compiled to plain DAGMan."""
