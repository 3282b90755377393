"""Questions of bAbI stories: data, task, answers and figures."""
