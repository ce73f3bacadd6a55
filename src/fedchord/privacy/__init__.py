"""Differential privacy: noise and its accounting, for whole clients or for rows; what methods release; audits."""
