"""From a trained model to text: search over one Step protocol, scoring, translation."""
