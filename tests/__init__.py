"""Tests, laid out as src/ is. Contract suites discover conf/model/*.yaml and conf/task/*.yaml."""
