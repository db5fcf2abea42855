"""Fine-tuning: training runs that leave domains out, averages of weights, and their choice."""
