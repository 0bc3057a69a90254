package sockmap

import "testing"

func TestKernelVersions(t *testing.T) {
	for _, tt := range []struct {
		release, build string
		ok             bool
	}{
		{"7.3.4+deb14-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1~bpo13+1 (2026-11-02)", true},
		{"6.12.117+deb13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1 (2026-10-30)", true},
		{"6.12.35", "#1 SMP", true},
		{"6.12.34", "#1 SMP", false},
		{"6.12-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.38-1 (2025-07-16)", true}, // the name has no stable number, the build has
		{"6.12-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.27-1 (2025-05-06)", false},
		{"6.12.0-55.el10.x86_64", "#1 SMP", false},
		{"6.11.99", "", false},
		{"6.13.0", "", false},
		{"6.15.9", "", false},
		{"6.16", "", true},
		{"6.16.0-rc1", "", true},
		{"10.0.1", "", true},
		{"5.15.0", "", false},
		{"", "", false},
		{"hurd", "", false},
	} {
		if err := checkVersion(tt.release, tt.build); (err == nil) != tt.ok {
			t.Errorf("%s, %s: %v", tt.release, tt.build, err)
		}
	}
}
