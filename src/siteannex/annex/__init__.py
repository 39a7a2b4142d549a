"""One annex, from plan to released: the verbs and the values they pass along."""
