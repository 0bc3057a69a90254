package hostile

// What the gateway answers itself: neighbours, DHCP, DNS.
var serviceRows = []row{
	{"L1", badARP},
	{"L2", badNDP},
	{"L3", both(neighbourFlood)},
	{"L4", badDHCP},
	{"L5", oddDHCP},
	{"L6", badDHCPv6},
	{"L7", both(badDNS)},
	{"L8", both(spoofedAnswers)},
	{"L9", both(noResolver)},
}
