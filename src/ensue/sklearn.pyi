from ensue.extensions.estimators.sklearn import Tagger as Tagger
from ensue.extensions.estimators.sklearn import TextClassifier as TextClassifier
