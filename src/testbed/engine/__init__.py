"""Evaluation: plan what is to do, dispatch it over devices, record what comes back."""
