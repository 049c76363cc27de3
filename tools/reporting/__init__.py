"""Parts of the page that tools/report.py writes about one or several runs."""
