package audit

import (
	"fmt"

	"github.com/refloat/refloat/internal/jobdb"
)

// Spent is what runs held, each from its lease to its end.
type Spent struct {
	Runs        uint64  `json:"runs"`
	Unknown     uint64  `json:"unknownRuns"` // of Runs, those of which it is unknown: they are not in the hours
	CPUHours    float64 `json:"cpuHours"`    // of a core
	MemoryHours float64 `json:"memoryGiBHours"`
	GPUHours    float64 `json:"gpuHours"` // of a device
}

// SpentOf returns the hours of what runs held.
func SpentOf(s *jobdb.Spent) Spent {
	return Spent{s.Runs, s.Unknown, s.CPUHours(), s.MemoryHours(), s.GPUHours()}
}

// Known reports whether the hours of any run are known.
func (s *Spent) Known() bool { return s.Runs > s.Unknown }

// Hours are hours of GPUs, of cores and of GiB of memory as people read them: "unknown" if they are of no run.
func (s *Spent) Hours() (gpu, cpu, memory string) {
	text := func(hours float64) string {
		switch {
		case s.Runs > 0 && !s.Known():
			return "unknown"
		case hours > 0 && hours < .0005:
			return "<0.001"
		case hours > 0 && hours < .1:
			return fmt.Sprintf("%.3f", hours)
		}
		return fmt.Sprintf("%.1f", hours)
	}
	return text(s.GPUHours), text(s.CPUHours), text(s.MemoryHours)
}
