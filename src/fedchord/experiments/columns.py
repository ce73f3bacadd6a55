"""The names of a run's numbers: which columns a metric has, and the metrics of runs that end with samples."""

SPREADS = ("seeds", "clients")
"""What a number in brackets may be the std over."""
SPREAD_OF = {"mean": "std", "swept": "swept_std", "validated": "validated_std"}
"""The column with the std over clients of another column; `swept` and `validated` are those of the lambda sweep."""
COLUMNS = (*SPREAD_OF, "std", "worst10", "best10", "gini", "gap", "pooled", "weighted", "clients", "undefined")
SAMPLES = (
    *("official", "upper", "upper_official", "lower", "lower_official", "real", "real_official", "membership"),
    *("frechet", "kid", "real_frechet", "real_kid"),
)
"""Numbers of runs that end with samples (see `synthesis`), with a mean like metrics; the first eight are shares."""
