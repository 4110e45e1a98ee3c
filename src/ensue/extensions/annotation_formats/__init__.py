"""File formats of annotation tools and libraries, such as Label Studio, brat, doccano, spaCy, DataTurks and pandas."""

from ensue.extension import Extension

_PACKAGE = "ensue.extensions.annotation_formats."
_LAYOUTS = {
    "label-studio": "label_studio:Task", "label-studio-min": "label_studio:FlatTask",
    "doccano": "doccano:NumberedLabels", "dataturks": "dataturks:DataTurks", "spacy-tuples": "spacy_files:SpacyTuple",
    "datasets-server": "tables:NumberedRow", "word-rows": "word_rows:WordRow", "values": "tables:Values",
    "pandas": "tables:ColumnsOrient", "pandas-split": "tables:SplitOrient", "lists": "tables:Lists",
    "indicators": "tables:Indicators", "labels-of-texts": "intents:LabelsOfTexts", "intents": "intents:Intents",
    "snips": "intents:Snips", "ubiai": "dataturks:Ubiai", "squad": "unread:Squad", "webanno": "unread:WebAnno",
}  # fmt: skip

EXTENSION = Extension(
    name="annotation_formats",
    formats={"spacy": _PACKAGE + "spacy_files:docbin_rows"},
    json_layouts={name: _PACKAGE + attribute for name, attribute in _LAYOUTS.items()},
    writers=dict.fromkeys(
        ("brat", "label-studio", "doccano", "prodigy", "docbin", "conll", "conllu", "csv", "jsonl"),
        _PACKAGE + "writers:write_predictions",
    ),
)
