"""Looking at programs and runs."""
