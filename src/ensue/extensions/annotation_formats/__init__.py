"""File formats of annotation tools and libraries, such as Label Studio, brat, doccano, spaCy, DataTurks and pandas."""

from ensue.extension import Extension

_PACKAGE = "ensue.extensions.annotation_formats."
_LAYOUTS = {
    "label-studio": "label_studio:Task", "label-studio-min": "label_studio:FlatTask",
    "doccano": "tools:NumberedLabels", "dataturks": "tools:DataTurks", "spacy-tuples": "spacy_files:SpacyTuple",
    "datasets-server": "tables:NumberedRow", "word-rows": "tables:WordRow", "values": "tables:Values",
    "pandas": "tables:ColumnsOrient", "pandas-split": "tables:SplitOrient", "lists": "tables:Lists",
    "indicators": "tables:Indicators", "labels-of-texts": "tools:LabelsOfTexts", "intents": "tools:Intents",
    "snips": "tools:Snips", "ubiai": "tools:Ubiai", "squad": "tools:Squad", "webanno": "tools:WebAnno",
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
