"""Linear classifiers on features: logistic regression and DomainBed's random search."""
