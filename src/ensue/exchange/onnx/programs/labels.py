"""Tags as labels."""


def labels_of(tags, config):
    """The labels as the training data write them, from the model's tags. Spans are read as conlleval does."""
    if config["letters"] is None:
        return tags
    first, inside, last, alone = config["letters"]
    parts = [(tag[0] if tag[1:2] in ("", "-") else "O", tag[2:]) for tag in tags]
    kinds = [{"M": "I", "L": "E", "U": "S", "W": "S"}.get(kind, kind) for kind, _ in parts]
    names = [name if kind in "BIES" else None for kind, (_, name) in zip(kinds, parts, strict=True)]
    begins = [
        names[t] is not None and (kinds[t] in "BS" or t == 0 or kinds[t - 1] in "OES" or names[t] != names[t - 1])
        for t in range(len(tags))
    ]
    found = []
    for t, name in enumerate(names):
        ends = t + 1 == len(tags) or begins[t + 1] or names[t + 1] is None
        letter = (alone if ends else first) if begins[t] else last if ends else inside
        if config["parting"] == "B" and begins[t] and t and names[t - 1] == name:
            letter = "B"
        if config["parting"] == "E" and ends and names[t + 1 : t + 2] == [name]:
            letter = "E"
        found.append("O" if name is None else f"{letter}-{name}" if name else letter)
    return found
