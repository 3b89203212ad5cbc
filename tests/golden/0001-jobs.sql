
PRAGMA page_size=4096;

BEGIN TRANSACTION;

DROP TABLE IF EXISTS counting;
CREATE TABLE counting(
            stream TEXT NOT NULL, seq INTEGER NOT NULL, ranges TEXT NOT NULL, PRIMARY KEY(stream, seq)) WITHOUT ROWID;
INSERT INTO counting VALUES('room:a',26,'[[1, 18]]');
INSERT INTO counting VALUES('room:b',23,'[[1, 22]]');
INSERT INTO counting VALUES('room:b',24,'[[1, 19], [22, 23]]');
INSERT INTO counting VALUES('room:c',6,'[]');
INSERT INTO counting VALUES('room:c',7,'[[1, 5]]');

DROP TABLE IF EXISTS event;
CREATE TABLE event(
            id INTEGER PRIMARY KEY, stream TEXT NOT NULL, seq INTEGER NOT NULL,
            kind TEXT NOT NULL, version INTEGER NOT NULL, payload TEXT NOT NULL, ts INTEGER NOT NULL,
            actor TEXT NOT NULL, cause INTEGER, key TEXT, turn TEXT,
            UNIQUE(stream, seq));
INSERT INTO event VALUES(1,'room:a',1,'sample_felt',1,'{"of":"teo","toward":"mara","delta":9}',1767225600000000,'sample',NULL,NULL,'t0');
INSERT INTO event VALUES(2,'room:a',2,'sample_said',1,'{"turn":"t0.1","speaker":"mara","text":"and while rain the from the somebody somebody stopped and singing was the singing her rain Mara letter"}',1767225600000000,'sample',NULL,NULL,'t0');
INSERT INTO event VALUES(3,'room:a',3,'sample_felt',1,'{"of":"mara","toward":"you","delta":4}',1767225600000000,'sample',NULL,NULL,'t0');
INSERT INTO event VALUES(4,'room:a',4,'sample_noticed',1,'{"memory":"m3","owner":"you","scene":"s0","text":"the harbour harbour looked her harbour letter singing her the letter the the singing her somebody in from had was","weight":0.6266705073468932}',1767225600000000,'sample',NULL,NULL,'t0');
INSERT INTO event VALUES(5,'room:a',5,'sample_noticed',1,'{"memory":"m4","owner":"mara","scene":"s0","text":"somebody in singing singing and looked singing letter while somebody the looked stopped harbour the had harbour singing","weight":0.359935864221377}',1767225600000000,'sample',NULL,NULL,'t1');
INSERT INTO event VALUES(6,'room:a',6,'sample_said',1,'{"turn":"t1.5","speaker":"teo","text":"and her her harbour the letter was harbour Mara was"}',1767225600000000,'sample',NULL,NULL,'t1');
INSERT INTO event VALUES(7,'room:a',7,'sample_said',1,'{"turn":"t1.6","speaker":"mara","text":"the her from singing singing harbour her rain and her rain in looked from the the letter was rain the and while in singing somebody while"}',1767225600000000,'sample',NULL,NULL,'t1');
INSERT INTO event VALUES(8,'room:a',8,'sample_said',1,'{"turn":"t1.7","speaker":"mara","text":"letter the singing her in had stopped letter singing harbour her rain somebody was the was Mara from the her stopped the rain was the"}',1767225600000000,'sample',NULL,NULL,'t1');
INSERT INTO event VALUES(9,'room:a',9,'sample_felt',1,'{"of":"you","toward":"teo","delta":-4}',1767225600000000,'sample',NULL,NULL,'t2');
INSERT INTO event VALUES(10,'room:a',10,'sample_noticed',1,'{"memory":"m9","owner":"teo","scene":"s0","text":"harbour looked from from rain Mara Mara and her the from from Mara her had the the the harbour stopped singing harbour while looked the","weight":0.18245146394668976}',1767225600000000,'sample',NULL,NULL,'t2');
INSERT INTO event VALUES(11,'room:a',11,'sample_felt',1,'{"of":"you","toward":"mara","delta":8}',1767225600000000,'sample',NULL,NULL,'t2');
INSERT INTO event VALUES(12,'room:a',12,'sample_said',1,'{"turn":"t2.11","speaker":"teo","text":"letter stopped Mara and letter rain and singing had somebody in in stopped while her and harbour and Mara and rain looked was the from the rain the"}',1767225600000000,'sample',NULL,NULL,'t2');
INSERT INTO event VALUES(13,'room:a',13,'sample_felt',1,'{"of":"you","toward":"mara","delta":1}',1767225600000000,'sample',NULL,NULL,'t3');
INSERT INTO event VALUES(14,'room:a',14,'sample_said',1,'{"turn":"t3.13","speaker":"teo","text":"in the was Mara from letter the singing stopped the singing had had"}',1767225600000000,'sample',NULL,NULL,'t3');
INSERT INTO event VALUES(15,'room:a',15,'sample_noticed',1,'{"memory":"m14","owner":"you","scene":"s0","text":"while singing Mara from had from looked the somebody the stopped the in letter letter","weight":0.2282557936263233}',1767225600000000,'sample',NULL,NULL,'t3');
INSERT INTO event VALUES(16,'room:a',16,'sample_time_passed',1,'{"minutes":76,"weather":"sun"}',1767225600000000,'sample',NULL,NULL,'t3');
INSERT INTO event VALUES(17,'room:a',17,'sample_said',1,'{"turn":"t4.16","speaker":"you","text":"stopped the harbour harbour the Mara her in the harbour while and the stopped her had in harbour in looked the letter and harbour looked from from the was somebody"}',1767225600000000,'sample',NULL,NULL,'t4');
INSERT INTO event VALUES(18,'room:a',18,'sample_noticed',1,'{"memory":"m17","owner":"teo","scene":"s0","text":"looked her the looked singing her looked the had Mara letter and in rain was letter harbour somebody Mara the looked letter singing the","weight":0.10492146078897058}',1767225600000000,'sample',NULL,NULL,'t4');
INSERT INTO event VALUES(19,'room:a',19,'sample_felt',1,'{"of":"mara","toward":"you","delta":3}',1767225600000000,'sample',NULL,NULL,'t4');
INSERT INTO event VALUES(20,'room:a',20,'sample_noticed',1,'{"memory":"m19","owner":"you","scene":"s0","text":"singing while harbour somebody was looked the the harbour letter","weight":0.17962310697639117}',1767225600000000,'sample',NULL,NULL,'t4');
INSERT INTO event VALUES(21,'room:a',21,'sample_felt',1,'{"of":"teo","toward":"you","delta":2}',1767225600000000,'sample',NULL,NULL,'t5');
INSERT INTO event VALUES(22,'room:a',22,'sample_said',1,'{"turn":"t5.21","speaker":"mara","text":"the was Mara rain singing the the and somebody had from letter Mara was somebody her Mara stopped from harbour was in Mara harbour while"}',1767225600000000,'sample',NULL,NULL,'t5');
INSERT INTO event VALUES(23,'room:a',23,'sample_felt',1,'{"of":"mara","toward":"teo","delta":1}',1767225600000000,'sample',NULL,NULL,'t5');
INSERT INTO event VALUES(24,'room:a',24,'sample_said',1,'{"turn":"t5.23","speaker":"teo","text":"was in the letter and"}',1767225600000000,'sample',NULL,NULL,'t5');
INSERT INTO event VALUES(25,'room:a',25,'sample_felt',1,'{"of":"you","toward":"mara","delta":-7}',1767225600000000,'sample',NULL,NULL,'t6');
INSERT INTO event VALUES(26,'room:a',26,'rewound',1,'{"to":18,"redo":false}',1767225600000000,'system',NULL,NULL,NULL);
INSERT INTO event VALUES(27,'room:a',27,'sample_said',1,'{"turn":"t6.25","speaker":"mara","text":"from her while had the was the letter her stopped singing her somebody Mara Mara her her Mara and while had her"}',1767225600000000,'sample',NULL,NULL,'t6');
INSERT INTO event VALUES(28,'room:a',28,'sample_felt',1,'{"of":"mara","toward":"teo","delta":-7}',1767225600000000,'sample',NULL,NULL,'t6');
INSERT INTO event VALUES(29,'room:a',29,'sample_said',1,'{"turn":"t6.27","speaker":"you","text":"singing while her somebody looked rain letter the in singing singing her harbour while was singing the and from harbour"}',1767225600000000,'sample',NULL,NULL,'t6');
INSERT INTO event VALUES(30,'room:a',30,'sample_noticed',1,'{"memory":"m28","owner":"teo","scene":"s0","text":"harbour the in had somebody harbour looked somebody letter in stopped while somebody had had the the letter the harbour and Mara the had singing somebody had had somebody","weight":0.15389845828650306}',1767225600000000,'sample',NULL,NULL,'t7');
INSERT INTO event VALUES(31,'room:a',31,'sample_said',1,'{"turn":"t7.29","speaker":"you","text":"while was singing Mara her was rain somebody looked was had her her the looked harbour somebody the Mara the her harbour rain somebody"}',1767225600000000,'sample',NULL,NULL,'t7');
INSERT INTO event VALUES(32,'room:b',23,'forked',1,'{"parent":"room:a","at":22}',1767225600000000,'system',NULL,NULL,NULL);
INSERT INTO event VALUES(33,'room:b',24,'superseded',1,'{"drop":[[20,21]],"restore":[]}',1767225600000000,'system',NULL,NULL,NULL);
INSERT INTO event VALUES(34,'room:b',25,'sample_felt',1,'{"of":"teo","toward":"mara","delta":-7}',1767225600000000,'sample',NULL,NULL,'t7');
INSERT INTO event VALUES(35,'room:b',26,'sample_scene_ended',1,'{"scene":"s0","keep":0.0305018242217856}',1767225600000000,'sample',NULL,NULL,'t7');
INSERT INTO event VALUES(36,'room:b',27,'sample_noticed',1,'{"memory":"m32","owner":"mara","scene":"s0","text":"somebody was the and looked the her was","weight":0.9847062314893862}',1767225600000000,'sample',NULL,NULL,'t8');
INSERT INTO event VALUES(37,'room:b',28,'sample_noticed',1,'{"memory":"m33","owner":"mara","scene":"s0","text":"the letter singing from while while was","weight":0.7549058590446158}',1767225600000000,'sample',NULL,NULL,'t8');
INSERT INTO event VALUES(38,'room:b',29,'sample_said',1,'{"turn":"t8.34","speaker":"you","text":"rain from letter the the singing the Mara rain the her from rain the the singing while letter had Mara the looked had harbour the"}',1767225600000000,'sample',NULL,NULL,'t8');
INSERT INTO event VALUES(39,'room:c',1,'sample_felt',1,'{"of":"mara","toward":"teo","delta":9}',1767225600000000,'sample',NULL,NULL,'t8');
INSERT INTO event VALUES(42,'room:c',4,'sample_time_passed',1,'{"minutes":25,"weather":"snow"}',1767225600000000,'sample',NULL,NULL,'t9');
INSERT INTO event VALUES(43,'room:c',5,'sample_noticed',1,'{"memory":"m39","owner":"you","scene":"s0","text":"singing the rain somebody and the while the was rain somebody letter letter her letter her the Mara letter from and the looked rain","weight":0.17157277641360302}',1767225600000000,'sample',NULL,NULL,'t9');
INSERT INTO event VALUES(44,'instance',1,'purged',1,'{"stream":"room:c","events":2,"first_seq":2,"last_seq":3,"reason":""}',1767225600000000,'system',NULL,NULL,NULL);
INSERT INTO event VALUES(45,'room:c',6,'reset',1,'{}',1767225600000000,'system',NULL,NULL,NULL);
INSERT INTO event VALUES(46,'room:c',7,'rewound',1,'{"to":5,"redo":true}',1767225600000000,'system',NULL,NULL,NULL);
CREATE UNIQUE INDEX event_key ON event(key) WHERE key IS NOT NULL;
CREATE INDEX event_turn ON event(turn) WHERE turn IS NOT NULL;

DROP TABLE IF EXISTS event_kind;
CREATE TABLE event_kind(kind TEXT, version INTEGER, PRIMARY KEY(kind, version)) WITHOUT ROWID;
INSERT INTO event_kind VALUES('forked',1);
INSERT INTO event_kind VALUES('purged',1);
INSERT INTO event_kind VALUES('reset',1);
INSERT INTO event_kind VALUES('rewound',1);
INSERT INTO event_kind VALUES('sample_felt',1);
INSERT INTO event_kind VALUES('sample_noticed',1);
INSERT INTO event_kind VALUES('sample_said',1);
INSERT INTO event_kind VALUES('sample_scene_ended',1);
INSERT INTO event_kind VALUES('sample_time_passed',1);
INSERT INTO event_kind VALUES('superseded',1);

DROP TABLE IF EXISTS job;
CREATE TABLE job(
            id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL UNIQUE, payload TEXT NOT NULL,
            state TEXT NOT NULL CHECK(state IN ('ready', 'leased', 'done', 'dead', 'withdrawn')),
            priority INTEGER NOT NULL, run_at INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
            max_attempts INTEGER NOT NULL, lease_until INTEGER, holder TEXT, error TEXT,
            cause INTEGER, created INTEGER NOT NULL, finished INTEGER);
INSERT INTO job VALUES(1,'work','golden','{}','withdrawn',0,1767225600000000,0,5,NULL,NULL,NULL,25,1767225600000000,NULL);
CREATE INDEX job_cause ON job(cause) WHERE cause IS NOT NULL;
CREATE INDEX job_due ON job(state, run_at) WHERE state IN ('ready', 'leased');

DROP TABLE IF EXISTS line;
CREATE TABLE line(
            stream TEXT PRIMARY KEY, parent TEXT, at INTEGER, root TEXT NOT NULL, head INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO line VALUES('room:a',NULL,NULL,'room:a',0);
INSERT INTO line VALUES('room:b','room:a',22,'room:a',23);
INSERT INTO line VALUES('room:c',NULL,NULL,'room:c',5);

DROP TABLE IF EXISTS migration;
CREATE TABLE migration(name TEXT PRIMARY KEY, applied INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO migration VALUES('m001_log',1767225600000000);
INSERT INTO migration VALUES('m002_jobs',1767225600000000);

DROP TABLE IF EXISTS sample_edge;
CREATE TABLE sample_edge(of TEXT, toward TEXT, affinity INTEGER NOT NULL, last_room TEXT NOT NULL,
            PRIMARY KEY(of, toward)) WITHOUT ROWID;
INSERT INTO sample_edge VALUES('mara','teo',52,'room:c');
INSERT INTO sample_edge VALUES('mara','you',54,'room:a');
INSERT INTO sample_edge VALUES('teo','mara',52,'room:b');
INSERT INTO sample_edge VALUES('you','mara',59,'room:a');
INSERT INTO sample_edge VALUES('you','teo',46,'room:a');

DROP TABLE IF EXISTS sample_memory;
CREATE TABLE sample_memory(room TEXT, memory TEXT, owner TEXT, scene TEXT, text TEXT, weight REAL,
            PRIMARY KEY(room, memory));
INSERT INTO sample_memory VALUES('room:a','m3','you','s0','the harbour harbour looked her harbour letter singing her the letter the the singing her somebody in from had was',0.6266705073468932);
INSERT INTO sample_memory VALUES('room:a','m4','mara','s0','somebody in singing singing and looked singing letter while somebody the looked stopped harbour the had harbour singing',0.359935864221377);
INSERT INTO sample_memory VALUES('room:a','m9','teo','s0','harbour looked from from rain Mara Mara and her the from from Mara her had the the the harbour stopped singing harbour while looked the',0.18245146394668976);
INSERT INTO sample_memory VALUES('room:a','m14','you','s0','while singing Mara from had from looked the somebody the stopped the in letter letter',0.2282557936263233);
INSERT INTO sample_memory VALUES('room:a','m17','teo','s0','looked her the looked singing her looked the had Mara letter and in rain was letter harbour somebody Mara the looked letter singing the',0.10492146078897058);
INSERT INTO sample_memory VALUES('room:a','m28','teo','s0','harbour the in had somebody harbour looked somebody letter in stopped while somebody had had the the letter the harbour and Mara the had singing somebody had had somebody',0.15389845828650306);
INSERT INTO sample_memory VALUES('room:b','m3','you','s0','the harbour harbour looked her harbour letter singing her the letter the the singing her somebody in from had was',0.564003456612204);
INSERT INTO sample_memory VALUES('room:b','m4','mara','s0','somebody in singing singing and looked singing letter while somebody the looked stopped harbour the had harbour singing',0.32394227779923934);
INSERT INTO sample_memory VALUES('room:b','m9','teo','s0','harbour looked from from rain Mara Mara and her the from from Mara her had the the the harbour stopped singing harbour while looked the',0.16420631755202078);
INSERT INTO sample_memory VALUES('room:b','m14','you','s0','while singing Mara from had from looked the somebody the stopped the in letter letter',0.20543021426369099);
INSERT INTO sample_memory VALUES('room:b','m17','teo','s0','looked her the looked singing her looked the had Mara letter and in rain was letter harbour somebody Mara the looked letter singing the',0.09442931471007353);
INSERT INTO sample_memory VALUES('room:b','m32','mara','s0','somebody was the and looked the her was',0.9847062314893862);
INSERT INTO sample_memory VALUES('room:b','m33','mara','s0','the letter singing from while while was',0.7549058590446158);
INSERT INTO sample_memory VALUES('room:c','m39','you','s0','singing the rain somebody and the while the was rain somebody letter letter her letter her the Mara letter from and the looked rain',0.17157277641360302);
CREATE INDEX sample_memory_scene ON sample_memory(room, scene);

DROP TABLE IF EXISTS sample_room;
CREATE TABLE sample_room(room TEXT PRIMARY KEY, turns INTEGER NOT NULL DEFAULT 0, minutes INTEGER NOT NULL
            DEFAULT 0, weather TEXT NOT NULL DEFAULT 'sun', last TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
INSERT INTO sample_room VALUES('room:a',10,76,'sun','while was singing Mara her was rain somebody looked was had her her the looked h');
INSERT INTO sample_room VALUES('room:b',9,76,'sun','rain from letter the the singing the Mara rain the her from rain the the singing');
INSERT INTO sample_room VALUES('room:c',0,25,'snow','');

DROP TABLE IF EXISTS sample_turn;
CREATE TABLE sample_turn(room TEXT, turn TEXT, seq INTEGER, speaker TEXT, text TEXT, PRIMARY KEY(room, turn))
            WITHOUT ROWID;
INSERT INTO sample_turn VALUES('room:a','t0.1',2,'mara','and while rain the from the somebody somebody stopped and singing was the singing her rain Mara letter');
INSERT INTO sample_turn VALUES('room:a','t1.5',6,'teo','and her her harbour the letter was harbour Mara was');
INSERT INTO sample_turn VALUES('room:a','t1.6',7,'mara','the her from singing singing harbour her rain and her rain in looked from the the letter was rain the and while in singing somebody while');
INSERT INTO sample_turn VALUES('room:a','t1.7',8,'mara','letter the singing her in had stopped letter singing harbour her rain somebody was the was Mara from the her stopped the rain was the');
INSERT INTO sample_turn VALUES('room:a','t2.11',12,'teo','letter stopped Mara and letter rain and singing had somebody in in stopped while her and harbour and Mara and rain looked was the from the rain the');
INSERT INTO sample_turn VALUES('room:a','t3.13',14,'teo','in the was Mara from letter the singing stopped the singing had had');
INSERT INTO sample_turn VALUES('room:a','t4.16',17,'you','stopped the harbour harbour the Mara her in the harbour while and the stopped her had in harbour in looked the letter and harbour looked from from the was somebody');
INSERT INTO sample_turn VALUES('room:a','t6.25',27,'mara','from her while had the was the letter her stopped singing her somebody Mara Mara her her Mara and while had her');
INSERT INTO sample_turn VALUES('room:a','t6.27',29,'you','singing while her somebody looked rain letter the in singing singing her harbour while was singing the and from harbour');
INSERT INTO sample_turn VALUES('room:a','t7.29',31,'you','while was singing Mara her was rain somebody looked was had her her the looked harbour somebody the Mara the her harbour rain somebody');
INSERT INTO sample_turn VALUES('room:b','t0.1',2,'mara','and while rain the from the somebody somebody stopped and singing was the singing her rain Mara letter');
INSERT INTO sample_turn VALUES('room:b','t1.5',6,'teo','and her her harbour the letter was harbour Mara was');
INSERT INTO sample_turn VALUES('room:b','t1.6',7,'mara','the her from singing singing harbour her rain and her rain in looked from the the letter was rain the and while in singing somebody while');
INSERT INTO sample_turn VALUES('room:b','t1.7',8,'mara','letter the singing her in had stopped letter singing harbour her rain somebody was the was Mara from the her stopped the rain was the');
INSERT INTO sample_turn VALUES('room:b','t2.11',12,'teo','letter stopped Mara and letter rain and singing had somebody in in stopped while her and harbour and Mara and rain looked was the from the rain the');
INSERT INTO sample_turn VALUES('room:b','t3.13',14,'teo','in the was Mara from letter the singing stopped the singing had had');
INSERT INTO sample_turn VALUES('room:b','t4.16',17,'you','stopped the harbour harbour the Mara her in the harbour while and the stopped her had in harbour in looked the letter and harbour looked from from the was somebody');
INSERT INTO sample_turn VALUES('room:b','t5.21',22,'mara','the was Mara rain singing the the and somebody had from letter Mara was somebody her Mara stopped from harbour was in Mara harbour while');
INSERT INTO sample_turn VALUES('room:b','t8.34',29,'you','rain from letter the the singing the Mara rain the her from rain the the singing while letter had Mara the looked had harbour the');

DROP TABLE IF EXISTS schedule;
CREATE TABLE schedule(
            name TEXT PRIMARY KEY, cron TEXT, every_s REAL, zone TEXT NOT NULL, kind TEXT NOT NULL,
            payload TEXT NOT NULL, next_at INTEGER NOT NULL, last_at INTEGER) WITHOUT ROWID;

DROP TABLE IF EXISTS undo_sample_edge;
CREATE TABLE undo_sample_edge(_n INTEGER PRIMARY KEY, _event INTEGER NOT NULL, _was INTEGER NOT NULL, "of", "toward", "affinity", "last_room");
INSERT INTO undo_sample_edge VALUES(1,1,0,'teo','mara',NULL,NULL);
INSERT INTO undo_sample_edge VALUES(2,3,0,'mara','you',NULL,NULL);
INSERT INTO undo_sample_edge VALUES(3,9,0,'you','teo',NULL,NULL);
INSERT INTO undo_sample_edge VALUES(4,11,0,'you','mara',NULL,NULL);
INSERT INTO undo_sample_edge VALUES(5,13,1,'you','mara',58,'room:a');
INSERT INTO undo_sample_edge VALUES(6,28,0,'mara','teo',NULL,NULL);
INSERT INTO undo_sample_edge VALUES(7,34,1,'teo','mara',59,'room:a');
INSERT INTO undo_sample_edge VALUES(8,39,1,'mara','teo',43,'room:a');
CREATE INDEX undo_sample_edge_event ON undo_sample_edge(_event);

DROP TABLE IF EXISTS undo_sample_memory;
CREATE TABLE undo_sample_memory(_n INTEGER PRIMARY KEY, _event INTEGER NOT NULL, _was INTEGER NOT NULL, "room", "memory", "owner", "scene", "text", "weight");
INSERT INTO undo_sample_memory VALUES(1,4,0,'room:a','m3',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(2,5,0,'room:a','m4',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(3,10,0,'room:a','m9',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(4,15,0,'room:a','m14',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(5,18,0,'room:a','m17',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(6,30,0,'room:a','m28',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(7,32,0,'room:b','m3',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(8,32,0,'room:b','m4',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(9,32,0,'room:b','m9',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(10,32,0,'room:b','m14',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(11,32,0,'room:b','m17',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(12,35,1,'room:b','m3','you','s0','the harbour harbour looked her harbour letter singing her the letter the the singing her somebody in from had was',0.6266705073468932);
INSERT INTO undo_sample_memory VALUES(13,35,1,'room:b','m4','mara','s0','somebody in singing singing and looked singing letter while somebody the looked stopped harbour the had harbour singing',0.359935864221377);
INSERT INTO undo_sample_memory VALUES(14,35,1,'room:b','m9','teo','s0','harbour looked from from rain Mara Mara and her the from from Mara her had the the the harbour stopped singing harbour while looked the',0.18245146394668976);
INSERT INTO undo_sample_memory VALUES(15,35,1,'room:b','m14','you','s0','while singing Mara from had from looked the somebody the stopped the in letter letter',0.2282557936263233);
INSERT INTO undo_sample_memory VALUES(16,35,1,'room:b','m17','teo','s0','looked her the looked singing her looked the had Mara letter and in rain was letter harbour somebody Mara the looked letter singing the',0.10492146078897058);
INSERT INTO undo_sample_memory VALUES(17,36,0,'room:b','m32',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(18,37,0,'room:b','m33',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_memory VALUES(19,43,0,'room:c','m39',NULL,NULL,NULL,NULL);
CREATE INDEX undo_sample_memory_event ON undo_sample_memory(_event);

DROP TABLE IF EXISTS undo_sample_room;
CREATE TABLE undo_sample_room(_n INTEGER PRIMARY KEY, _event INTEGER NOT NULL, _was INTEGER NOT NULL, "room", "turns", "minutes", "weather", "last");
INSERT INTO undo_sample_room VALUES(1,2,0,'room:a',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_room VALUES(2,6,1,'room:a',1,0,'sun','and while rain the from the somebody somebody stopped and singing was the singin');
INSERT INTO undo_sample_room VALUES(3,7,1,'room:a',2,0,'sun','and her her harbour the letter was harbour Mara was');
INSERT INTO undo_sample_room VALUES(4,8,1,'room:a',3,0,'sun','the her from singing singing harbour her rain and her rain in looked from the th');
INSERT INTO undo_sample_room VALUES(5,12,1,'room:a',4,0,'sun','letter the singing her in had stopped letter singing harbour her rain somebody w');
INSERT INTO undo_sample_room VALUES(6,14,1,'room:a',5,0,'sun','letter stopped Mara and letter rain and singing had somebody in in stopped while');
INSERT INTO undo_sample_room VALUES(7,16,1,'room:a',6,0,'sun','in the was Mara from letter the singing stopped the singing had had');
INSERT INTO undo_sample_room VALUES(8,17,1,'room:a',6,76,'sun','in the was Mara from letter the singing stopped the singing had had');
INSERT INTO undo_sample_room VALUES(9,27,1,'room:a',7,76,'sun','stopped the harbour harbour the Mara her in the harbour while and the stopped he');
INSERT INTO undo_sample_room VALUES(10,29,1,'room:a',8,76,'sun','from her while had the was the letter her stopped singing her somebody Mara Mara');
INSERT INTO undo_sample_room VALUES(11,31,1,'room:a',9,76,'sun','singing while her somebody looked rain letter the in singing singing her harbour');
INSERT INTO undo_sample_room VALUES(12,32,0,'room:b',NULL,NULL,NULL,NULL);
INSERT INTO undo_sample_room VALUES(13,32,1,'room:b',1,0,'sun','and while rain the from the somebody somebody stopped and singing was the singin');
INSERT INTO undo_sample_room VALUES(14,32,1,'room:b',2,0,'sun','and her her harbour the letter was harbour Mara was');
INSERT INTO undo_sample_room VALUES(15,32,1,'room:b',3,0,'sun','the her from singing singing harbour her rain and her rain in looked from the th');
INSERT INTO undo_sample_room VALUES(16,32,1,'room:b',4,0,'sun','letter the singing her in had stopped letter singing harbour her rain somebody w');
INSERT INTO undo_sample_room VALUES(17,32,1,'room:b',5,0,'sun','letter stopped Mara and letter rain and singing had somebody in in stopped while');
INSERT INTO undo_sample_room VALUES(18,32,1,'room:b',6,0,'sun','in the was Mara from letter the singing stopped the singing had had');
INSERT INTO undo_sample_room VALUES(19,32,1,'room:b',6,76,'sun','in the was Mara from letter the singing stopped the singing had had');
INSERT INTO undo_sample_room VALUES(20,32,1,'room:b',7,76,'sun','stopped the harbour harbour the Mara her in the harbour while and the stopped he');
INSERT INTO undo_sample_room VALUES(21,38,1,'room:b',8,76,'sun','the was Mara rain singing the the and somebody had from letter Mara was somebody');
INSERT INTO undo_sample_room VALUES(22,42,0,'room:c',NULL,NULL,NULL,NULL);
CREATE INDEX undo_sample_room_event ON undo_sample_room(_event);

DROP TABLE IF EXISTS undo_sample_turn;
CREATE TABLE undo_sample_turn(_n INTEGER PRIMARY KEY, _event INTEGER NOT NULL, _was INTEGER NOT NULL, "room", "turn", "seq", "speaker", "text");
INSERT INTO undo_sample_turn VALUES(1,2,0,'room:a','t0.1',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(2,6,0,'room:a','t1.5',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(3,7,0,'room:a','t1.6',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(4,8,0,'room:a','t1.7',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(5,12,0,'room:a','t2.11',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(6,14,0,'room:a','t3.13',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(7,17,0,'room:a','t4.16',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(8,27,0,'room:a','t6.25',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(9,29,0,'room:a','t6.27',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(10,31,0,'room:a','t7.29',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(11,32,0,'room:b','t0.1',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(12,32,0,'room:b','t1.5',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(13,32,0,'room:b','t1.6',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(14,32,0,'room:b','t1.7',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(15,32,0,'room:b','t2.11',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(16,32,0,'room:b','t3.13',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(17,32,0,'room:b','t4.16',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(18,32,0,'room:b','t5.21',NULL,NULL,NULL);
INSERT INTO undo_sample_turn VALUES(19,38,0,'room:b','t8.34',NULL,NULL,NULL);
CREATE INDEX undo_sample_turn_event ON undo_sample_turn(_event);

DROP TABLE IF EXISTS "view";
CREATE TABLE view(name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, position INTEGER NOT NULL,
            floor INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "view" VALUES('sample_edges','7ae7c16f9f479923',46,0);
INSERT INTO "view" VALUES('sample_memories','9cb418ffe61ce693',46,0);
INSERT INTO "view" VALUES('sample_turns','4401a61f3e6e928d',46,0);

COMMIT TRANSACTION;
-- views: {"sample_turns": "87554ce1effce318ab7c261ac04b74b57b7810cb495f27ce4d1885a5229d225c", "sample_edges": "ed68d90ee1f9a70ee97b399393a5322c0ef847644e98bd67c68af12dc77fb8a1", "sample_memories": "7ee20953c2d0d0397338851832f6b95aef4e84deb5e064c401707ba61bbf17ba"}
