"""File formats of annotation tools and libraries, such as Label Studio, brat, doccano, spaCy, DataTurks and pandas."""

from ensue.extension import Extension

_HERE = "ensue.extensions.annotation_formats."

EXTENSION = Extension(
    name="annotation_formats",
    json_layouts={
        "label-studio": _HERE + "label_studio:Task",
        "label-studio-min": _HERE + "label_studio:FlatTask",
        "doccano": _HERE + "doccano:NumberedLabels",
        "dataturks": _HERE + "dataturks:DataTurks",
        "spacy-tuples": _HERE + "spacy_tuples:SpacyTuple",
        "datasets-server": _HERE + "tables:NumberedRow",
        "word-rows": _HERE + "word_rows:WordRow",
        "values": _HERE + "tables:Values",
        "pandas": _HERE + "tables:Columns",
        "pandas-split": _HERE + "tables:Split",
        "lists": _HERE + "tables:Lists",
        "labels-of-texts": _HERE + "intents:LabelsOfTexts",
        "intents": _HERE + "intents:Intents",
        "snips": _HERE + "intents:Snips",
        "squad": _HERE + "squad:Squad",
    },
    writers=dict.fromkeys(
        ("brat", "label-studio", "doccano", "prodigy", "docbin", "conll", "conllu", "csv", "jsonl"),
        _HERE + "writers:write_predictions",
    ),
)
