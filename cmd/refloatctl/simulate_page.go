package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/refloat/refloat/internal/simulate"
	simulatereport "github.com/refloat/refloat/internal/simulate/report"
)

// writePage writes the results as an HTML page. A page that cannot be made leaves the file as it was.
func writePage(path string, results [][]*simulate.Result, assumed []string) error {
	var page bytes.Buffer
	if err := simulatereport.Write(&page, results, assumed); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return os.WriteFile(path, page.Bytes(), 0o644)
}
