// Command ready requests a URL and exits with 0 if the status is 200. It is the
// health check of the image, which has neither a shell nor curl.
//
//	ready http://127.0.0.1:9090/readyz
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: ready URL")
		os.Exit(2)
	}
	client := http.Client{Timeout: 3 * time.Second}
	resp, err := client.Get(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		fmt.Fprintln(os.Stderr, os.Args[1], resp.Status)
		os.Exit(1)
	}
}
