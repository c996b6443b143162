package web_test

func stopBrowser() {}
