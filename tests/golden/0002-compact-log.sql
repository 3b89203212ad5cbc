
PRAGMA page_size=4096;

BEGIN TRANSACTION;

DROP TABLE IF EXISTS active_ranges;
CREATE TABLE "active_ranges"(
            stream TEXT NOT NULL, seq INTEGER NOT NULL, ranges TEXT NOT NULL, PRIMARY KEY(stream, seq)) WITHOUT ROWID;
INSERT INTO active_ranges VALUES('room:a',26,'[[1, 18]]');
INSERT INTO active_ranges VALUES('room:b',23,'[[1, 22]]');
INSERT INTO active_ranges VALUES('room:b',24,'[[1, 19], [22, 23]]');
INSERT INTO active_ranges VALUES('room:c',6,'[]');
INSERT INTO active_ranges VALUES('room:c',7,'[[1, 5]]');

DROP TABLE IF EXISTS event_kind;
CREATE TABLE event_kind(
            id INTEGER PRIMARY KEY, kind TEXT NOT NULL, version INTEGER NOT NULL, UNIQUE(kind, version));
INSERT INTO event_kind VALUES(1,'sample_felt',1);
INSERT INTO event_kind VALUES(2,'sample_said',1);
INSERT INTO event_kind VALUES(3,'sample_noticed',1);
INSERT INTO event_kind VALUES(4,'sample_time_passed',1);
INSERT INTO event_kind VALUES(5,'rewound',1);
INSERT INTO event_kind VALUES(6,'forked',1);
INSERT INTO event_kind VALUES(7,'superseded',1);
INSERT INTO event_kind VALUES(8,'sample_scene_ended',1);
INSERT INTO event_kind VALUES(9,'purged',1);
INSERT INTO event_kind VALUES(10,'reset',1);

DROP TABLE IF EXISTS finished_job;
CREATE TABLE finished_job(key INTEGER PRIMARY KEY);

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

DROP TABLE IF EXISTS log;
CREATE TABLE log(
            id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL,
            payload BLOB NOT NULL, ts INTEGER NOT NULL, actor INTEGER NOT NULL, cause INTEGER, key TEXT, turn INTEGER);
INSERT INTO log VALUES(1,2,1,1,'{"of":"teo","toward":"mara","delta":9}',1767225600000000,3,NULL,NULL,1);
INSERT INTO log VALUES(2,2,2,2,X'0183076589819E218A8381654122C21A505B03D2622F4A84B642E0ED0A505B30291FD8A541304AF281692505DC4201B6B7D341AD1950BB0AAC1ACA0735E1C066015B0A89C066710928FFD60200',1767225600000000,3,NULL,NULL,1);
INSERT INTO log VALUES(3,2,3,1,'{"of":"mara","toward":"you","delta":4}',1767225600000000,3,NULL,NULL,1);
INSERT INTO log VALUES(4,2,4,3,X'010396D5A9C0261B4879AE31529283B80296A68A0D1016828A65607E4B02B5A76034B405046E95C184524B4AC05D8FBC74505B26035AA04385C1AD18508B08491AD4A44CCA4F0115F090360BA8B1076C8D814A9E5450A700542E9B199999991B981A981B9B9859581A1BD50200',1767225600000000,3,NULL,NULL,1);
INSERT INTO log VALUES(5,2,5,3,X'010396D5A9C0261B4879AE095292039604894889AAD8006123A8E997949F022A88418DE97470BF0B4A839A24D0E6104C2827B504D4B88734F7E17A4B102D29600D044C58A0765D5112A891069282B4F3207CA841A0022815D4370015CFC6A69696C6A6166626464686C6E6E6B500',1767225600000000,3,NULL,NULL,4);
INSERT INTO log VALUES(6,2,6,2,'{"turn":"t1.5","speaker":"teo","text":"and her her harbour the letter was harbour Mara was"}',1767225600000000,3,NULL,NULL,4);
INSERT INTO log VALUES(7,2,7,2,X'0183076589A19E198A8381654122C21A50610CEE59801A13C026743AB8B705A581D92F09D4BC02292802F5A920CD59280788A02D24784B048473524B408D7E50730BAC0CD6A281F40B8002705B807939293FA51222A3540B00',1767225600000000,3,NULL,NULL,4);
INSERT INTO log VALUES(8,2,8,2,X'0183076589A19E398A8381654122C29A9CD4921268990C6C40A7839A27A03618B041026A92012B1160DA485180AA82AB482C4A0235BB402A8B407D2D50AB31291FD8F90135B2C08D14200D6C2924221A29E0FE0AD438101FAC0FAA5CA91600',1767225600000000,3,NULL,NULL,4);
INSERT INTO log VALUES(9,2,9,1,'{"of":"you","toward":"teo","delta":-4}',1767225600000000,3,NULL,NULL,5);
INSERT INTO log VALUES(10,2,10,3,X'010396D5A9C0261B4879AE2552922B49CD474A53C506080B81792D09D49682B67AC0AD0B305104EA4D01ABFD44080169D216219A2060022C056EBD25421A2F300C3316581F0193590AA8999E0E6A04C1C421DD05583F24035C17A682BA0AA0D2DAD0C2C8C4D4D0C4CCD8D2C4CCCCC2D2DCAC1600',1767225600000000,3,NULL,NULL,5);
INSERT INTO log VALUES(11,2,11,1,'{"of":"you","toward":"mara","delta":8}',1767225600000000,3,NULL,NULL,5);
INSERT INTO log VALUES(12,2,12,2,X'0183076589919EA1218A8B4B52F311D6E4A49694801BD2F9C0449002AADD13C1ED0FA87811A82705E2035BD7E9A0B60BA8A1066A2326E5A7804A6C1082E98534FCC10D7570D3B72809D43403B1E1A6828D8336AB40ED3194660C5812C850AA0500',1767225600000000,3,NULL,NULL,5);
INSERT INTO log VALUES(13,2,13,1,'{"of":"you","toward":"mara","delta":1}',1767225600000000,3,NULL,NULL,6);
INSERT INTO log VALUES(14,2,14,2,X'0183076589B19EA1318A8B4B52F311D6405B1EA0C611B0664F84342A72524B4AA00535B0559D0EEE8095E40353490A8A18A4D196A2540B00',1767225600000000,3,NULL,NULL,6);
INSERT INTO log VALUES(15,2,15,3,X'010396D5A9C0261B4879AEA109529A83380396A88A0D1036421AEEC066743AA89102ACE713214D0C50DB0CCC8075163220CDC4A47C606F07CC29C907A62058FB06D8122E017742C014A8784905B5FC4185AF91918591A9A9B9A5B1999199B191B1712D00',1767225600000000,3,NULL,NULL,6);
INSERT INTO log VALUES(16,2,16,4,'{"minutes":76,"weather":"sun"}',1767225600000000,3,NULL,NULL,6);
INSERT INTO log VALUES(17,2,17,2,X'0183076589899EA1198A8B514213584D00631FD2DE00E6B624506B0A4683C480D57D22B855066DA2C0E420AD7C584B05660AB8F9066CCA0115C3140299B04E06A891955A02EA11809BC550055059706B06DEA40135D6404DD1A4FC944AA55A00',1767225600000000,3,NULL,NULL,7);
INSERT INTO log VALUES(18,2,18,3,X'014D974B0E80200C44AF540C4A398E44A21B42A26C5C78776762892CFBA1DD94C91B687506B2B1BDB830DC5CCB7538AA4BFE8D863B8749B485C0EA9DD0C274770BA812D880022BB8B791F1C92CA09893CE8BA465697CE044402356A6BADDDF9B61BCF5F52DA8509032BD02E5DA898F93F38B04D51864D6E705',1767225600000000,3,NULL,NULL,7);
INSERT INTO log VALUES(19,2,19,1,'{"of":"mara","toward":"you","delta":3}',1767225600000000,3,NULL,NULL,7);
INSERT INTO log VALUES(20,2,20,3,X'010396D5A9C0261B4879AEA125529A83380396A88A0D1036021BD0E9A0E609A4010FCC7A49A0A615A84198940FECD780DA4FB0EE4206B8910E5793935A5202CEE3E5A9A0463EA89C3534B7343332363430B3343733B6343434AF0500',1767225600000000,3,NULL,NULL,7);
INSERT INTO log VALUES(21,2,21,1,'{"of":"teo","toward":"you","delta":2}',1767225600000000,3,NULL,NULL,8);
INSERT INTO log VALUES(22,2,22,2,X'0183076589A99E91218A8B81854122C21E709302D83402D6EB890A45A08E13B0219D0E6BA6C09A23A06661527E4A25B8A1066E78E4A49680DAF6606D20FD08153051600D044C5850E5C09C9C046AA9819402ED002B808B817A0C4AB500',1767225600000000,3,NULL,NULL,8);
INSERT INTO log VALUES(23,2,23,1,'{"of":"mara","toward":"teo","delta":1}',1767225600000000,3,NULL,NULL,8);
INSERT INTO log VALUES(24,2,24,2,'{"turn":"t5.23","speaker":"teo","text":"was in the letter and"}',1767225600000000,3,NULL,NULL,8);
INSERT INTO log VALUES(25,2,25,1,'{"of":"you","toward":"mara","delta":-7}',1767225600000000,3,NULL,NULL,9);
INSERT INTO log VALUES(26,2,26,5,'{"to":18,"redo":false}',1767225600000000,10,NULL,NULL,NULL);
INSERT INTO log VALUES(27,2,27,2,X'0183076589999E91298A8B81854122C21E702B02D4EC82B4DB410D31702B23B1184CE7A49680BB18E0C6763E30A1A4801ADAE9A0660C580C981F93F253C0CD8244089101550EE6809A32088381C24AB500',1767225600000000,3,NULL,NULL,9);
INSERT INTO log VALUES(28,2,28,1,'{"of":"mara","toward":"teo","delta":-7}',1767225600000000,3,NULL,NULL,9);
INSERT INTO log VALUES(29,2,29,2,X'0183076589999E91398A8B514213D86A4E07B54920AD7670A70298C592F2811D1968F3A708D499CA492D298116DD401E4C138C06B7DA128B92404D318841A0C6164C16D6A401B757A0CA946A01',1767225600000000,3,NULL,NULL,9);
INSERT INTO log VALUES(30,2,30,3,X'015597310E80200C45AF8420A41E4742E3226190D5BBDB0F547120219FB62C9FF22ABD9A05D9109E2D4D9EAB5C26535DE6BB511E5B044C0D20019281066349E0C57E3690E8D54FAE207C0997FF466CA4F83F25A6B61ADE80B27A02B65A13B82354B10F3181E40F1DFA7E455440CF628C13E8E88B77B4D1EAC952F0C699703F',1767225600000000,3,NULL,NULL,11);
INSERT INTO log VALUES(31,2,31,2,X'0183076589B99E91258A8B514213D25A07B58D80EDE77450EB0458C12782DB6120C122504F0AD4264CCA07766DA00D229004B8C1066AAC410B74A81430C326811A64702D2039B0892006580354058AC94AB500',1767225600000000,3,NULL,NULL,11);
INSERT INTO log VALUES(32,12,23,6,'{"parent":"room:a","at":22}',1767225600000000,10,NULL,NULL,NULL);
INSERT INTO log VALUES(33,12,24,7,'{"drop":[[20,21]],"restore":[]}',1767225600000000,10,NULL,NULL,NULL);
INSERT INTO log VALUES(34,12,25,1,'{"of":"teo","toward":"mara","delta":-7}',1767225600000000,3,NULL,NULL,11);
INSERT INTO log VALUES(35,12,26,8,'{"scene":"s0","keep":0.0305018242217856}',1767225600000000,3,NULL,NULL,11);
INSERT INTO log VALUES(36,12,27,3,X'010396D5A9C0261B4879AEB111529A0316058948A9AAD8006125A8ED97940FECC2809A4AB08608AC8700E4821A6740295089910A6ACC83CA534B0B13730333236343130B4B630B33A35A00',1767225600000000,3,NULL,NULL,13);
INSERT INTO log VALUES(37,12,28,3,X'010396D5A9C0261B4879AEB131529A0316058948A9AAD8006125A860CE492D2901F72CF2D2414D15701B03D2A2879289C5A0122315D4980795A7E6A6269606A616A6960626266686A616B500',1767225600000000,3,NULL,NULL,13);
INSERT INTO log VALUES(38,12,29,2,X'0183076589859EB1098A8B5142B308D45502B72472524B4AA0A53308039BD3E9B0C60AB0CE4F5400AB04F1C01D11900EB808B27A48F31F6A18A85907D65C826860419A7A4549A0761B5058A91600',1767225600000000,3,NULL,NULL,13);
INSERT INTO log VALUES(39,14,1,1,'{"of":"mara","toward":"teo","delta":9}',1767225600000000,3,NULL,NULL,13);
INSERT INTO log VALUES(42,14,4,4,'{"minutes":25,"weather":"snow"}',1767225600000000,3,NULL,NULL,15);
INSERT INTO log VALUES(43,14,5,3,X'010396D5A9C0261B4879AEB125529A83380396A88A0D1036021BD0E9B0E64911A807056A0B26E503BB34B00609A4690F66011B53A86A72524BC05D0F089581CA046901361C126162E0A60BCC546833AB0852EC95A782FA09A0A2DAD0DCD0D4DCC8DCDCCCC4D0D8CCC0D8C0A81600',1767225600000000,3,NULL,NULL,15);
INSERT INTO log VALUES(44,16,1,9,'{"stream":"room:c","events":2,"first_seq":2,"last_seq":3,"reason":""}',1767225600000000,10,NULL,NULL,NULL);
INSERT INTO log VALUES(45,14,6,10,'{}',1767225600000000,10,NULL,NULL,NULL);
INSERT INTO log VALUES(46,14,7,5,'{"to":5,"redo":true}',1767225600000000,10,NULL,NULL,NULL);
CREATE UNIQUE INDEX log_key ON log(key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX log_stream ON log(stream, seq);
CREATE INDEX log_turn ON log(turn) WHERE turn IS NOT NULL;

DROP TABLE IF EXISTS migration;
CREATE TABLE migration(name TEXT PRIMARY KEY, applied INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO migration VALUES('m001_log',1767225600000000);
INSERT INTO migration VALUES('m002_jobs',1767225600000000);
INSERT INTO migration VALUES('m003_table_names',1767225600000000);
INSERT INTO migration VALUES('m004_compact_log',1767225600000000);
INSERT INTO migration VALUES('m005_finished_jobs',1767225600000000);

DROP TABLE IF EXISTS name;
CREATE TABLE name(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO name VALUES(1,'t0');
INSERT INTO name VALUES(2,'room:a');
INSERT INTO name VALUES(3,'sample');
INSERT INTO name VALUES(4,'t1');
INSERT INTO name VALUES(5,'t2');
INSERT INTO name VALUES(6,'t3');
INSERT INTO name VALUES(7,'t4');
INSERT INTO name VALUES(8,'t5');
INSERT INTO name VALUES(9,'t6');
INSERT INTO name VALUES(10,'system');
INSERT INTO name VALUES(11,'t7');
INSERT INTO name VALUES(12,'room:b');
INSERT INTO name VALUES(13,'t8');
INSERT INTO name VALUES(14,'room:c');
INSERT INTO name VALUES(15,'t9');
INSERT INTO name VALUES(16,'instance');

DROP TABLE IF EXISTS projection;
CREATE TABLE "projection"(name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, position INTEGER NOT NULL,
            floor INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO projection VALUES('sample_edges','7ae7c16f9f479923',46,0);
INSERT INTO projection VALUES('sample_memories','9cb418ffe61ce693',46,0);
INSERT INTO projection VALUES('sample_turns','4401a61f3e6e928d',46,0);

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

DROP TABLE IF EXISTS shared_text;
CREATE TABLE shared_text(id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, content BLOB NOT NULL);
CREATE INDEX shared_text_hash ON shared_text(hash);

DROP TABLE IF EXISTS stream_lineage;
CREATE TABLE "stream_lineage"(
            stream TEXT PRIMARY KEY, parent TEXT, at INTEGER, root TEXT NOT NULL, head INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO stream_lineage VALUES('room:a',NULL,NULL,'room:a',0);
INSERT INTO stream_lineage VALUES('room:b','room:a',22,'room:a',23);
INSERT INTO stream_lineage VALUES('room:c',NULL,NULL,'room:c',5);

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

DROP VIEW IF EXISTS event;
CREATE VIEW event AS
            SELECT log.id, stream.name AS stream, log.seq, event_kind.kind, event_kind.version,
                json_payload(log.payload) AS payload, log.ts, actor.name AS actor, log.cause, log.key,
                turn.name AS turn
            FROM log JOIN name AS stream ON stream.id = log.stream JOIN event_kind ON event_kind.id = log.kind
                JOIN name AS actor ON actor.id = log.actor LEFT JOIN name AS turn ON turn.id = log.turn;

COMMIT TRANSACTION;
-- views: {"sample_turns": "87554ce1effce318ab7c261ac04b74b57b7810cb495f27ce4d1885a5229d225c", "sample_edges": "ed68d90ee1f9a70ee97b399393a5322c0ef847644e98bd67c68af12dc77fb8a1", "sample_memories": "7ee20953c2d0d0397338851832f6b95aef4e84deb5e064c401707ba61bbf17ba"}
